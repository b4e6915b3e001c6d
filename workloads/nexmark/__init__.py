"""NEXMark in streaming mode, with exact results after restarts, killed executors and handovers."""

QUICK = (
    "all --events 40000 --batches 6 --fault restart",
    "nbq8 --events 60000 --batches 12 --cluster --fault handover,kill",
    "nbqx --events 30000 --batches 6 --cluster --fault handover,kill",
    "nbq8 --events 200000 --batches 28 --profile varying --interval 1.5 --cluster --fault handover",
)
LOWER_IS_BETTER = ("batch_ms_p50",)
