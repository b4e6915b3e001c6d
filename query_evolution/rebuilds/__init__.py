"""State of operators that are born, computed from the former rows: new code runs a query's batches without output."""
