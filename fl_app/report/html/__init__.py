"""The report of one run, or of several side by side, as one HTML file that needs no network."""
