"""A killed worker beside Apache Flink, if Flink is installed."""

QUICK = ("--sizes 0.25 --rounds 1",)
LOWER_IS_BETTER = ("running", "committed")
