"""Modifications of running queries: records beside the query checkpoint, which the driver checks and binds."""
