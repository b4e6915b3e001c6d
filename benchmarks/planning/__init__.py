"""Plans of placement at the scale of large clusters, and how copies survive the loss of many workers at once."""

QUICK = ("--workers 1000 --nodes 100000 --ticks 3",)
LOWER_IS_BETTER = ("cpu_s", "time_gap", "max_rss_mib")
