"""Runs over a grid of options."""
