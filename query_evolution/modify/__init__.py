"""Modifications of running queries: records beside the query checkpoint, checked and bound by the driver."""
