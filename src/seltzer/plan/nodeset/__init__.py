"""What to do about a NodeSet, and its status."""
