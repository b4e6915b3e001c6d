"""The workers that a manager knows: their leases and reports."""
