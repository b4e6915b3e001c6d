"""What it costs to take over a lost worker's state when it was replicated whole, and when its files were spread."""

QUICK = ("--bytes 64000000 --files 16 --rounds 1",)
LOWER_IS_BETTER = ("fetched_bytes", "prepare_ms")
