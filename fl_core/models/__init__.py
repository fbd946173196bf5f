"""The models, their layers, and the files that they are kept in."""
