"""The libraries that arrays may come from, NumPy included, behind one contract."""
