"""Passes over arrays on a GPU, by Triton."""
