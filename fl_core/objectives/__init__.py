"""Local objectives: what a client optimises, and which part of its model stays private."""
