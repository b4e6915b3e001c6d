"""Archives logged batches (ARCHITECTURE.md, "Archive")."""
