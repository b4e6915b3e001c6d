"""A killed worker with gigabytes of state, beside Spark's own RocksDB provider."""
