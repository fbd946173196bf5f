"""Starting and ending Flower's and Ray's processes, and what the machine has."""
