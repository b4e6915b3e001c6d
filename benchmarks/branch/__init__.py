"""Branches of a running query: how long they take, and what the query pays."""

QUICK = ("--sizes 0.1 --rounds 1 --branches 2",)
LOWER_IS_BETTER = ("branch_ms", "during_ratio")
