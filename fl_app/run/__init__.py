"""One run: every strategy on every seed."""
