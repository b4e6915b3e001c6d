"""Moving state while a query runs, beside what a planned move costs without Rhino."""

QUICK = (("--sizes", "0.25", "--rounds", "1"),)
