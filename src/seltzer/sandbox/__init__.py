"""A real multi-node Kubernetes on this one machine, made of namespaces, for the demo and the tests."""
