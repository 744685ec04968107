"""The state volume: its fence, its free space, and slurmctld's log on it."""
