"""What happens in a round: who takes part, what they send, what is made of it."""
