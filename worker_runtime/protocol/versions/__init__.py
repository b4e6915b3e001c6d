"""Versions of a store: the files that each needs."""
