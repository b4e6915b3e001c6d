"""Resets a query checkpoint to the newest batch whose state is still available, after all newer copies were lost."""
