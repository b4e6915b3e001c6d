"""Resets a query checkpoint to the newest batch with available state, after all newer copies were lost."""
