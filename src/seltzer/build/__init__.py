"""Pure functions that build the Kubernetes manifests of clusters and NodeSets, as dicts."""
