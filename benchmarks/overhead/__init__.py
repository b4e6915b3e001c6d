"""What Rhino costs a query that nothing happens to, beside Spark's own provider."""

QUICK = ("--settings r1 --loads nbq8 count --rounds 2 --batches 5 --rows-per-batch 10000",)
