"""A data set and options made into a federation: clients, tasks and tests."""
