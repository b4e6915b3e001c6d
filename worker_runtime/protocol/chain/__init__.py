"""The chain machine: files go down the chain, and acks come back."""
