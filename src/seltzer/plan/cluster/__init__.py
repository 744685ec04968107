"""What to do about a SlurmCluster, and its status."""
