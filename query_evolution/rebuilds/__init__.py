"""State of born operators, computed from the former rows: new code runs a query's batches without output."""
