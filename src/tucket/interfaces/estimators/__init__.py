"""Transformers of scikit-learn: samples lie along the first mode."""
