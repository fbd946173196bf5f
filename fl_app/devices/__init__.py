"""What only real devices need: keys, the gate, the way to them, and their models."""
