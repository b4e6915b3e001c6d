"""Stateful operators inserted, removed and reordered: a new query with the state of the former one."""
