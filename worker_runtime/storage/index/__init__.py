"""The index of stored files."""
