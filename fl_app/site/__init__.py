"""What runs at a site: its SuperNode, and the process that answers its messages."""
