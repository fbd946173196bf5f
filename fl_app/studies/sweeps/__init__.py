"""Many simulations: the product of lists of values, each run once, in one table and picture."""
