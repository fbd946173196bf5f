"""What runs at a site: its client, its model's files, its checks, its SuperNode."""
