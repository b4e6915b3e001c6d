"""The command line. This module runs before any that imports gRPC.

A function `run_...` carries out a command and returns its exit code. main.py reports the RhinoErrors that it raises.
"""

import os

# Otherwise gRPC writes a line for each connection that TLS refuses, and a stranger could fill the disk.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
