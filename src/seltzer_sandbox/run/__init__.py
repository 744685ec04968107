"""Start, break and end one sandbox: its processes, namespaces, network and files."""
