"""What a site says of its data, what all sites agree on, and how a site's data are read by it."""
