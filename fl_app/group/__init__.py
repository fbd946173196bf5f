"""`fedkin group` and `fedkin place`: clusters without training, and a place for a new client."""
