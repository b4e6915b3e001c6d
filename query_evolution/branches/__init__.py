"""The checkpoint folder of a branch: a new query that begins with the state of another one at a batch."""
