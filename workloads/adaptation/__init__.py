"""Simulated clusters that adapt to seeded traces of load: the core of the handover manager, without I/O."""
