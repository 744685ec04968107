"""The plan for a SlurmCluster, and its status."""
