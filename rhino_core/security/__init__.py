"""Identities of processes, their rights, and the TLS connections that prove both."""
