"""The HandoverManager service around the core. The core does no I/O."""
