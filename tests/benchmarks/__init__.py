"""Benchmarks (`make bench`): measured figures, not tests."""
