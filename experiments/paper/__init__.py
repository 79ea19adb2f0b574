"""The paper's experiments: the plan, the process that runs it, the file of results, figures and tables."""
