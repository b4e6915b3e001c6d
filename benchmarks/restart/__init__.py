"""Other code takes over a running query, and code that fails gives it back: how long it is down."""

QUICK = ("--sizes 0.1 --rounds 1 --changes 1", "--sizes 0.1 --rounds 1 --changes 1 --processes")
LOWER_IS_BETTER = ("pause_ms", "back_ms")
