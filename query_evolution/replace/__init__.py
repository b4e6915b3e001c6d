"""Supervised restart: other code takes over a running query between two batches, or the former code goes on."""
