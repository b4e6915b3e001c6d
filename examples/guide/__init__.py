"""Whole programs for the pages of the user guide: each starts its own cluster, and needs nothing but this package."""
