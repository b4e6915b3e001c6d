"""Events with changes of groups."""
