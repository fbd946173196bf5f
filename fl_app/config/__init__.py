"""What a run is told, read and checked, and the strategies that it asks for."""
