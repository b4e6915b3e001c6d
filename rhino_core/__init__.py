"""The common ground of all processes of Rhino: vocabulary, contract of protocol cores, journal, logs and settings."""

import os

# gRPC reads it at its import. With its handlers of forks, one in thirty programs that a process starts in a fork, beside
# calls in progress, dies before its first instruction: PySpark starts the driver's JVM so. None of our forks calls gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
