"""The stateful map query of "On-the-fly Reconfiguration" (BTW 2019, 6.3.1)."""
