"""A killed worker with gigabytes of state, beside Spark's own RocksDB provider."""

QUICK = ("--sizes 0.25 --subjects rhino,stock,block --rounds 1",)
