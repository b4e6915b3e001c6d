"""Moving state while a query runs, beside the cost of a planned move without Rhino."""

QUICK = ("--sizes 0.1 --rounds 1",)
LOWER_IS_BETTER = ("steady_batch", "switch_batch", "switch_median", "total")
