"""The cost of Rhino for a query without faults and moves, beside Spark's own provider."""

QUICK = ("--settings r1 --loads nbq8 count --rounds 2 --batches 5 --rows-per-batch 10000",)
LOWER_IS_BETTER = ("p50_ms", "p99_ms", "ratio_p50", "spark_cpu_s", "daemons_cpu_s", "cpu_ratio", "network_mb")
HIGHER_IS_BETTER = ("rows_per_s",)
