"""Rhino's side of Spark: settings, the jar of the JVM part, query checkpoints."""
