"""Examines query checkpoints of Rhino and of stock Spark, without a JVM and without a cluster: see `rhino doctor`."""
