"""Replication throughput and commit latency beside rsync daemons, a bare gRPC stream and cp."""

QUICK = ("--bytes 500000000 --rounds 1 --commits 300 --parts throughput commits",)
