"""The measurements that the documentation quotes: commands with committed output."""
