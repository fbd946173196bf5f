"""What is not public in Flower, and breaks with its releases: nobody else imports it."""
