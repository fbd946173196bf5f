"""What every strategy runs on: rounds, replies, conversations, the roster."""
