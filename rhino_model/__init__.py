"""What clients, commands and managers say to each other about queries, handovers and load, and its form on the wire."""
