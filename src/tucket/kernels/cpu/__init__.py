"""Passes over NumPy arrays by compiled loops."""
