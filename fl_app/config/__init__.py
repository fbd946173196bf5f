"""The run configuration: options, rules on their values, and the strategies made of them."""
