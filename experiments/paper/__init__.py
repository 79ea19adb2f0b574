"""The paper's experiments: a plan, a process that carries it out run by run, a file of rows, figures and findings."""
