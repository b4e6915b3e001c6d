"""Who a process is, what it may call, and the TLS connections by which both are known."""
