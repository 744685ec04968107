"""PID 1 of the slurmctld container: runs slurmctld as its child and sees that only one controller ever writes.

It runs where there is only Python's standard library, so it imports nothing else, not even from Seltzer.
"""
