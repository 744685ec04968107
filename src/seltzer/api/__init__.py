"""The words of the API as msgspec Structs: SlurmCluster and NodeSet, and the parts of core objects that we read.

No behaviour and no I/O: everything above may import it, it imports nothing above.
"""
