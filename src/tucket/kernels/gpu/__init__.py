"""Passes over arrays in GPU memory, with Triton."""
