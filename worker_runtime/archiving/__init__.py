"""The archive of state, as seen from a sidecar: it uploads what a batch needs, and loads what no worker has."""
