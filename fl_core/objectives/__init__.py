"""Local objectives: what a client optimises, and what of its model it keeps for itself."""
