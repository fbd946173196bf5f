"""Models, their layers, and their files."""
