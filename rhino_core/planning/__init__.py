"""Where virtual nodes and their copies should be: a model, goals and pure functions that propose, score and explain.

docs/design/placement.md has the model, the bounds and their proofs.
"""
