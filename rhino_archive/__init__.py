"""An archive: a slow, cheap and independent copy of the state of queries (docs/design/archive.md)."""
