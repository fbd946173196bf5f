"""Simulated clients, in this process or on Ray, and what starts them."""
