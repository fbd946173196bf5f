"""Sums of updates of which the server sees no single one, and who spoils them."""
