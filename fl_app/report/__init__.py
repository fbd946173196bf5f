"""What a run leaves to look at: results, tables, progress and pictures."""
