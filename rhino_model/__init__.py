"""Values that clients, commands and managers exchange about queries, handovers and load, and their form on the wire."""
