"""A cluster with automatic balance, after a step of the load."""

QUICK = ("--before 24 --after 40",)
LOWER_IS_BETTER = ("balanced_s", "max_over_mean")
HIGHER_IS_BETTER = ("in_time",)
