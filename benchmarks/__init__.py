"""Benchmarks: each is a module with a command line, compares with peers in the same run, and writes JSON on request."""
