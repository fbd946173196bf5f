"""The ground floor: what clients and server both speak. Imports nothing of this project."""
