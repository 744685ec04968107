"""Make what a sandbox starts from: programs from Go modules, images with buildah, and a template of a node's disk."""
