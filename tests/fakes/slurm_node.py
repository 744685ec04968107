"""A node as slurmrestd writes it, with all its fields (the size of an answer is real, too), and what happens to it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from seltzer.slurm.models import BASE_STATES

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
    "features": ["cpu", "set_cpu"],
    "active_features": ["cpu", "set_cpu"],
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


def number(value: int) -> dict[str, Any]:
    """As the data parser wraps it."""
    return {"set": True, "infinite": False, "number": value}


def set_base(node: dict[str, Any], *base: str) -> None:
    """Another base state; the flags stay."""
    flags = (state for state in node["state"] if state not in BASE_STATES)
    node["state"] = list(dict.fromkeys([*base, *flags]))


def set_reason(node: dict[str, Any], reason: str, now: int) -> None:
    """The time is that of a new reason: the same once more leaves it."""
    if reason != node["reason"]:
        user = "slurm" if reason else ""
        node.update(reason=reason, reason_set_by_user=user, reason_changed_at=number(now if reason else 0))


def drain(node: dict[str, Any], reason: str, now: int) -> None:
    node["state"] = [*(each for each in node["state"] if each != "DRAIN"), "DRAIN"]
    set_reason(node, reason, now)


def configured(conf: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a record that slurmd's `--conf` sets."""
    features = conf["Feature"].split(",") if conf.get("Feature") else []
    # A pod that says no size has what its machine has, by way of a variable: $(CPUS).
    sizes = {key: int(value) for key, value in conf.items() if value.isdigit()}
    return {
        "features": features,
        "active_features": features,
        "partitions": features[:1],
        "cpus": sizes.get("CPUs", TEMPLATE["cpus"]),
        "real_memory": sizes.get("RealMemory", TEMPLATE["real_memory"]),
        "weight": sizes.get("Weight", 1),
    }


def registered_again(node: dict[str, Any], conf: Mapping[str, str], now: int) -> None:
    """A slurmd registers whose record is there already. The record stays as it is: features and weight that are new
    don't count until it was deleted, a drain stays, and a slurmd that has less than the record says is drained."""
    found = configured(conf)
    node["state"] = [each for each in node["state"] if each not in ("NOT_RESPONDING", "INVALID_REG")]
    if "DOWN" in node["state"]:
        set_base(node, "IDLE")
        if "DRAIN" not in node["state"]:
            set_reason(node, "", now)
    low = ["Low socket*core*thread count, Low CPUs"] if found["cpus"] < node["cpus"] else []
    low += ["Low RealMemory"] if found["real_memory"] < node["real_memory"] else []
    if low:
        drain(node, ", ".join(low), now)
        node["state"].append("INVALID_REG")
