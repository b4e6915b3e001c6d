"""Queries with known answers, and trials that run them through faults and compare their output."""
