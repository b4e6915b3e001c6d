"""The cost of taking over a lost worker's state: replicated whole, or with its files spread."""

QUICK = ("--bytes 64000000 --files 16 --rounds 1",)
LOWER_IS_BETTER = ("fetched_bytes", "prepare_ms")
