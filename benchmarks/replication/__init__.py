"""Replication throughput and commit latency beside rsync daemons, a bare gRPC stream and cp."""
