"""The choice of workers for copies."""
