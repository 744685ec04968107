"""The variables by which the operator tells a controller pod's guard who it is."""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "SELTZER_NAMESPACE"
LEASE: Final = "SELTZER_LEASE"
ENDPOINTSLICE: Final = "SELTZER_ENDPOINTSLICE"
IDENTITY: Final = "SELTZER_IDENTITY"
ADDRESS: Final = "SELTZER_ADDRESS"
LEASE_DURATION: Final = "SELTZER_LEASE_DURATION"
"""In seconds."""
KEEP_JOBS: Final = "SELTZER_KEEP_JOBS"
"""`true` or `false`."""
