"""What clients send to be grouped: spectra, centroids, encoders."""
