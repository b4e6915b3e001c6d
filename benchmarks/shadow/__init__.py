"""New code runs beside a live query, as its shadow: what the live query pays, and how far the shadow falls behind."""

QUICK = ("--sizes 0.1 --rounds 1 --shadows 1 --intervals 1 --batches 4",)
LOWER_IS_BETTER = ("ratio", "shadow_ms")
