"""Adaptation under seeded traces of load: what must never happen, and how balanced simulated clusters end."""

QUICK = ("--traces 120",)
LOWER_IS_BETTER = ("after", "after_p95", "problems")
