"""Shadow runs: new code runs on a branch, batch by batch with the live query, and both outputs are compared."""
