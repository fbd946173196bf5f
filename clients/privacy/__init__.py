"""Differential privacy of the pre-round and of training."""
