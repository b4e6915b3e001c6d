"""Identities of processes, their rights, and the TLS connections to prove both."""
