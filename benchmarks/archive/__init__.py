"""The archive: requests, bytes, age and price of a query with many partitions, and the rate of a restore."""

QUICK = ("requests --partitions 20 --workers 3 --seconds 20",)
LOWER_IS_BETTER = ("requests_a_day", "uploaded_over_new", "age_max_s")
