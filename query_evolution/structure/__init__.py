"""Stateful operators inserted, removed and reordered: a new query that begins with the state of the former one."""
