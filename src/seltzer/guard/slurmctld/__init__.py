"""slurmctld as the guard runs it: the process, its configuration, its crashes."""
