"""Benchmarks: one list of cases feeds `make bench`, asv and the tests."""
