"""Replica groups and the rules of their members. None of it knows how groups change."""
