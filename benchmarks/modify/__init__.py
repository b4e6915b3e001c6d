"""The code of a running query is changed: when the change counts, and what it costs."""

QUICK = ("--loads nbq5 --changes 2 --rounds 1 --rows-per-batch 4000",)
LOWER_IS_BETTER = ("wait_ms", "switch_ms", "ratio")
