"""Measurements: one table of cases feeds `make bench`, asv and the tests."""
