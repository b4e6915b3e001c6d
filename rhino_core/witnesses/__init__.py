"""The manager's journal on witnesses: a majority of passive acceptors keeps each record."""
