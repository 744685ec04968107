"""The guard's side of Kubernetes: its Lease, its report, and the API server."""
