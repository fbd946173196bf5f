"""What the documentation's numbers come from: each is a command whose output is committed."""
