"""Benchmarks: each prints one line of JSON."""
