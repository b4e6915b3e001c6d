"""The checkpoint folder of a branch: a new query with the state of another one at a batch."""
