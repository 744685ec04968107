"""PID 1 of the slurmctld container: runs slurmctld as its child and sees that only one controller ever writes.

It runs where there is only Python's standard library, so it imports nothing else, not even from Seltzer.

One thread, the supervisor's, does all that could harm: it starts, signals and ends slurmctld and looks at the fence.
What may have to wait for somebody (the API server, slurmctld's answer, squeue) has a thread of its own and only leaves
word.
"""
