"""What answers a message: a simulated client, with its attack and what it keeps for itself."""
