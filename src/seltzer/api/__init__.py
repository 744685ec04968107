"""The API as msgspec Structs: SlurmCluster and NodeSet, and the parts of core objects that we read.

No behaviour and no I/O: all layers above may import it, and it imports none of them.
"""
