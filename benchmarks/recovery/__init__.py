"""A killed worker with gigabytes of state, beside Spark's own RocksDB provider."""

QUICK = ("--sizes 0.25 --subjects rhino,stock --rounds 1",)
LOWER_IS_BETTER = ("steady_batch_ms", "detected", "loaded", "next_batch", "prepare_p50", "prepare_p99", "network_bytes")
