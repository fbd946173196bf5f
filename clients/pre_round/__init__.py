"""What a client computes before any training: its spectrum, its signature, its shift."""
