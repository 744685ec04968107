"""The state volume: the fence around it, its free space, and slurmctld's log on it."""
