"""Every process killed at every step of a handover, on a real cluster under a running query."""
