"""Versions of a store, and the files of each."""
