"""The code of a running query is changed: the time until the change counts, and its cost."""

QUICK = ("--loads nbq5 --changes 2 --rounds 1 --rows-per-batch 4000",)
LOWER_IS_BETTER = ("wait_ms", "switch_ms", "ratio")
