"""Airline delays on real flights (Madsen & Zhou, CIKM 2015, section 7)."""

QUICK = ("--batches 12 --fault restart",)
LOWER_IS_BETTER = ("batch_ms_p50",)
