"""Megaphone's counting benchmarks (PVLDB 2019, 5.2)."""

QUICK = ("--domain 50000 --updates 50000 --batches 10 --virtual-nodes 4 16",)
LOWER_IS_BETTER = ("batch_ms_p50",)
