"""The roof: the Flower app that joins clients and strategies, its configuration and its results."""
