"""The steps of an iterative decomposition: how a Tucker model comes nearer to a tensor."""
