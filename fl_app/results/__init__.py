"""What a run leaves in its folder."""
