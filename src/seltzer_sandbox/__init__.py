"""A real multi-node Kubernetes on one machine, made of namespaces: a developer's tool, for the demo and the tests.

It stands beside the product: `seltzer` imports nothing of it, and no image or wheel of ours contains it. Its verbs
(`cli`, `demo`) use the product's; everything below them uses only `errors`, `paths` and `progress`.
"""
