"""What Slurm's commands print for a snapshot."""

from __future__ import annotations

from tests.builders.slurm import CLOCK

MARK = "\x1fmark\x1f"

JOB = {
    "JobArrayID": "12_[3-5%2]",
    "JobID": "12",
    "UserName": "ann",
    "Name": "train",
    "State": "PENDING",
    "Reason": "Resources",
    "Partition": "cpu",
    "NodeList": "",
    "ReqNodes": "cpu-[0-1]",
    "StartTime": "N/A",
    "EndTime": "NONE",
    "SubmitTime": "1794811331",
    "EligibleTime": "1794811331",
    "TimeLimit": "1-02:03:04",
    "Requeue": "1",
    "NumCPUs": "4",
    "NumNodes": "2-3",
    "Feature": "(null)",
    "Dependency": "(null)",
    "PriorityLong": "77",
    "admin_comment": "",
}
NODES = '{"nodes": [{"name": "cpu-0", "state": ["IDLE"], "reason": "bad\\u001b[2J\\ndisk", "address": "10.0.0.1"}]}'
PARTITIONS = (
    '{"partitions": [{"name": "cpu", "nodes": {"configured": "cpu-0", "total": 1}, "partition": {"state": ["UP"]},'
    ' "maximums": {"time": {"set": true, "infinite": false, "number": 60},'
    ' "nodes": {"set": false, "infinite": true}}}]}'
)


def printed(*jobs: dict[str, str], now: str = str(CLOCK), told: str = NODES, separator: str = MARK) -> str:
    lines = "\n".join("".join(f"{value}{separator}" for value in each.values()) for each in jobs)
    return f"{now}{separator}{told}{separator}{PARTITIONS}{separator}{lines}{separator}"
