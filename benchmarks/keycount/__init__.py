"""Megaphone's counting benchmarks (PVLDB 2019, 5.2)."""
