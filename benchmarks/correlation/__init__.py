"""Copies placed by correlation of loads: how many moves they assist, and how many of them are usable."""

QUICK = ("--seeds 2",)
HIGHER_IS_BETTER = ("assisted", "usable", "usable_first")
