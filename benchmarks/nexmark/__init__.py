"""NEXMark in streaming mode, exact through restarts, killed executors and handovers."""
