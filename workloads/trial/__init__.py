"""Runs a streaming job through faults and compares its output with DuckDB's answer."""
