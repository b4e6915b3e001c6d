"""Pure cores of the handover manager: plan, state machine of a handover, desired locations (Rhino 4.1)."""
