"""The common ground of all processes of Rhino: vocabulary, contract of protocol cores, journal, logs and settings."""

import os

# gRPC reads it at its import. With gRPC's handlers of forks, one in thirty programs started in a fork beside calls in
# progress dies before its first instruction. PySpark starts the driver's JVM so. No fork of ours calls gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
