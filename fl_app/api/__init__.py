"""From Python: simulations for scripts and notebooks, and their results as data frames."""
