"""NEXMark's events in Spark SQL, and the comparison of a stream's output with rows from elsewhere."""
