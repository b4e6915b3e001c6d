"""A controller from outside: it reads the load of batches, and asks for handovers."""
