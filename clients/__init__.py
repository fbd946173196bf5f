"""What happens on a device: features, spectrum, training, and the message handlers."""
