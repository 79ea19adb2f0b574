"""Passes over NumPy arrays, compiled with Numba."""
