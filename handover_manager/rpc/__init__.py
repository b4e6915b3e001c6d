"""The HandoverManager service around the pure core."""
