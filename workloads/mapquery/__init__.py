"""The stateful map query of "On-the-fly Reconfiguration" (BTW 2019, 6.3.1)."""

QUICK = ("--seconds 30 --cluster --fault handover",)
LOWER_IS_BETTER = ("batch_ms_p50",)
