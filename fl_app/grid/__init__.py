"""Flower's grids, with the waiting that this project needs."""
