"""PID 1 of the slurmctld container: runs slurmctld as its child and ensures that only one controller ever writes.

Only Python's standard library is available here. The guard imports nothing else, not even other parts of Seltzer.

One thread, the supervisor's, does everything that can cause harm: it starts, signals and ends slurmctld and checks the
fence. Whatever may block (calls to the API server, slurmctld's replies, squeue) runs in a thread of its own, which only
leaves its result behind.
"""
