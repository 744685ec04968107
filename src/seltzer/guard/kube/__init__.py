"""The guard's side of Kubernetes: its Lease, its report, and its client of the API server."""
