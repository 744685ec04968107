"""Environment variables that more than one part of Seltzer knows."""

from __future__ import annotations

from typing import Final

# Set in the pods of the controller, for the guard; NAMESPACE and IDENTITY in those of the operator, too.
NAMESPACE: Final = "SELTZER_NAMESPACE"
LEASE: Final = "SELTZER_LEASE"
ENDPOINTSLICE: Final = "SELTZER_ENDPOINTSLICE"
IDENTITY: Final = "SELTZER_IDENTITY"
ADDRESS: Final = "SELTZER_ADDRESS"
LEASE_DURATION: Final = "SELTZER_LEASE_DURATION"
"""In seconds."""
KEEP_JOBS: Final = "SELTZER_KEEP_JOBS"
"""`true` or `false`."""

# Set in jobs by `build/job_submit.lua`, which has these names as well.
JOB: Final = "SELTZER_JOB"
"""The key of the job's line in the journal."""
PUT_BACK: Final = "SELTZER_PUT_BACK"
"""The same, set by the guard: the job is put back, and was accepted before."""
