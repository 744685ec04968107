"""The only code that talks to Slurm: slurmrestd, the node cache, hostlists, and slurm.conf rendered and parsed."""
