"""PySpark's own streaming tests, as they are in its wheel, on Spark's own state store and over Rhino."""
