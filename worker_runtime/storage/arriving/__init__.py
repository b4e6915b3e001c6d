"""New files: from executors, from other workers, and links for branches."""
