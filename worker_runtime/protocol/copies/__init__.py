"""Copies of a group beside pushes: catch-up, Prepare, and copies in excess."""
