"""A node as slurmrestd writes it, with all its fields: the size of an answer is real, too."""

from __future__ import annotations

import copy
from typing import Any

TEMPLATE: dict[str, Any] = {
    "architecture": "x86_64",
    "burstbuffer_network_address": "",
    "boards": 1,
    "boot_time": {"set": True, "infinite": False, "number": 1794774710},
    "tls_cert_last_renewal": {"set": True, "infinite": False, "number": 0},
    "cert_flags": [],
    "cluster_name": "",
    "cores": 2,
    "specialized_cores": 0,
    "cpu_binding": 0,
    "cpu_load": 440,
    "free_mem": {"set": True, "infinite": False, "number": 11753},
    "cpus": 2,
    "effective_cpus": 2,
    "specialized_cpus": "",
    "energy": {
        "average_watts": 0,
        "base_consumed_energy": 0,
        "consumed_energy": 0,
        "current_watts": {"set": True, "infinite": False, "number": 0},
        "previous_consumed_energy": 0,
        "last_collected": 0,
    },
    "extra": "",
    "features": ["cpu"],
    "active_features": ["cpu"],
    "gpu_spec": "",
    "gres": "",
    "gres_drained": "N/A",
    "gres_used": "",
    "instance_id": "",
    "instance_type": "",
    "last_busy": {"set": True, "infinite": False, "number": 1794780839},
    "mcs_label": "",
    "specialized_memory": 0,
    "next_state_after_reboot": ["INVALID"],
    "operating_system": "Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC",
    "owner": "",
    "partitions": ["cpu"],
    "port": 6818,
    "real_memory": 24105,
    "res_cores_per_gpu": 0,
    "reason": "",
    "reason_changed_at": {"set": True, "infinite": False, "number": 0},
    "reason_set_by_user": "",
    "resume_after": {"set": True, "infinite": False, "number": 0},
    "reservation": "",
    "suspend_time": {"set": False, "infinite": True, "number": 0},
    "alloc_memory": 0,
    "alloc_cpus": 0,
    "alloc_idle_cpus": 2,
    "tres_used": "",
    "slurmd_start_time": {"set": True, "infinite": False, "number": 1794780839},
    "sockets": 1,
    "threads": 1,
    "temporary_disk": 0,
    "weight": 1,
    "topology": "",
    "tres": "cpu=2,mem=24105M,billing=2",
    "version": "26.05.5",
}


def record(name: str, state: list[str], **fields: Any) -> dict[str, Any]:
    """A node of its own."""
    node = {"name": name, "hostname": name, "address": name, "comment": "", "state": state}
    return {**copy.deepcopy(TEMPLATE), **node, **fields}
