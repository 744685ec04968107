"""The only code that talks to Slurm: slurmrestd, the node cache, hostlists, and reading and writing slurm.conf."""
