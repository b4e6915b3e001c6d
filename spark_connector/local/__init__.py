"""`local_session()`: a manager and a sidecar on this machine, shared by all processes with the same data directory."""
