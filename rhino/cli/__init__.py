"""The command line. This module runs before any that imports gRPC."""

import os

# Otherwise gRPC writes a line for each connection that TLS refuses, and a stranger could fill the disk.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
