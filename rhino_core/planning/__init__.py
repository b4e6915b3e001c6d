"""Places for virtual nodes and their copies: a model, goals and pure functions to propose, score and explain.

docs/design/placement.md has the model, the bounds and their proofs.
"""
