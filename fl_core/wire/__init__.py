"""What both sides of a message must agree on: names, sizes, masks."""
