"""Pure manifests: what a cluster or a node set looks like in Kubernetes, as dicts and nothing else."""
