"""Replication throughput and commit latency beside rsync daemons, a bare gRPC stream and cp."""

QUICK = ("--bytes 500000000 --rounds 1 --commits 300 --parts throughput commits",)
LOWER_IS_BETTER = (
    "cpu_s_per_gb_hop",
    "idle p50_ms",
    "idle p99_ms",
    "beside_bulk p50_ms",
    "cpu_us_per_commit",
    "cpu_us_per_commit_at_rate",
)
HIGHER_IS_BETTER = ("mb_per_s", "commits_per_s")
