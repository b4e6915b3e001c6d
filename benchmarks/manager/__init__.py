"""One manager process with many sidecars, groups and queries: processor time, heartbeats, memory, restart."""

QUICK = ("--workers 100 --groups 10000 --seconds 10",)
LOWER_IS_BETTER = ("cpu_share", "heartbeat_p99_ms", "memory_mib", "restart_s", "all_live_s")
