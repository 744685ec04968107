"""What people see of a cluster: facts joined from Slurm and Kubernetes, explained in words and trees. No I/O."""
