"""The events that change groups."""
