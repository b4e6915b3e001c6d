"""Moving state while a query runs, beside what a planned move costs without Rhino."""
