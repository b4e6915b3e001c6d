"""The HandoverManager service around the core, which does no I/O."""
