"""A cluster with automatic balance: a step of the load, and workers that come and go with it."""

QUICK = ("--parts step --before 24 --after 40",)
LOWER_IS_BETTER = ("balanced_s", "max_over_mean")
HIGHER_IS_BETTER = ("in_time",)
