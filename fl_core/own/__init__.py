"""What a device brings: its own images or samples."""
