"""The workers known to a manager: their leases and reports."""
