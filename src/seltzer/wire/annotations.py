"""The annotations of the controller's Lease: the guard reports with them, and people ask for things with them."""

from __future__ import annotations

from typing import Final, Literal

PREFIX: Final = "seltzer.dev/"

Phase = Literal["starting", "running", "stopping", "crashed", "blocked", "held"]
"""What slurmctld does, as PHASE has it."""

# Written by the guard, about itself and its slurmctld.
CONFIG: Final = "seltzer.dev/config"
"""The digest of the configuration that slurmctld runs with."""
PHASE: Final = "seltzer.dev/phase"
MESSAGE: Final = "seltzer.dev/message"
STARTED: Final = "seltzer.dev/started"
"""When slurmctld was last started."""
SLURM_VERSION: Final = "seltzer.dev/slurm-version"
RESTARTS: Final = "seltzer.dev/restarts"
"""How many times this guard has restarted a crashed slurmctld."""
VOLUME: Final = "seltzer.dev/volume"
"""JSON: free space and size of the state volume."""
NAMES: Final = "seltzer.dev/names"
"""Why the name servers of slurmctld's pod are of no use; absent if they answer."""

# Written by the guard, about the cluster. They outlive the guard that wrote them.
EPOCH: Final = "seltzer.dev/epoch"
SAVED: Final = "seltzer.dev/saved"
"""When slurmctld last saved its state."""
CRASH: Final = "seltzer.dev/crash"
"""JSON: the last crash of slurmctld."""
RECOVERED: Final = "seltzer.dev/recovered"
"""JSON: the jobs that were found again after a crash, and what became of them."""
NEWS: Final = "seltzer.dev/news"
"""JSON: the last things that the guard did, of which the operator makes Events."""

# Written by people and by the operator, for the guard.
HOLD: Final = "seltzer.dev/hold"
"""`true` keeps slurmctld down."""
ACCEPT_STATE: Final = "seltzer.dev/accept-state"
"""The epoch directory that may be used although the Lease names another. The guard removes it after use."""
