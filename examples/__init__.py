"""Examples to run and to copy."""
