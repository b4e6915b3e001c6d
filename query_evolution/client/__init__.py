"""Calls of the managers and sidecars for branches, restructured and rebuilt queries."""
