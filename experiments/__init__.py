"""The tables of papers, run again: simulations of experiment files beside published numbers."""
