"""`make bench`: a quick run of every benchmark, and one page with their results."""
