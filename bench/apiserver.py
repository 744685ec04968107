"""An API server with a single, very fast answer: a watch of 10,000 pods, each through four phases.

`python bench/apiserver.py PODS` prints its port. It replaces a real one where that would be the bottleneck.
"""

from __future__ import annotations

import asyncio
import json
import sys

PHASES = ("Pending", "Scheduled", "ContainerCreating", "Running")


def pod(number: int, version: int, phase: str) -> bytes:
    """A line of a watch with a pod of typical size, 5.7 KB."""
    name = f"cpu-{number}"
    fields: dict[str, object] = {f"f:field-{i}": {"f:inner": {}, "k:{}": {".": {}, "f:value": {}}} for i in range(45)}
    container = {
        "name": "slurmd",
        "image": "seltzer.dev/slurmd:dev",
        "env": [{"name": f"VARIABLE_{i}", "value": "x" * 20} for i in range(20)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    }
    status = "True" if phase == "Running" else "False"
    conditions = [
        {
            "type": kind,
            "status": status,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    item = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "slurm",
            "uid": f"{number:032x}",
            "resourceVersion": str(version),
            "labels": {"app": "slurmd", "nodeset": f"set-{number % 50}"},
            "managedFields": [{"manager": "seltzer", "operation": "Apply", "fieldsV1": fields}],
        },
        "spec": {"nodeName": f"n{number % 500}", "containers": [container]},
        "status": {"phase": "Running" if phase == "Running" else "Pending", "conditions": conditions},
    }
    kind = "ADDED" if phase == PHASES[0] else "MODIFIED"
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def stream(pods: int) -> list[bytes]:
    end = {"k8s.io/initial-events-end": "true"}
    first = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1", "annotations": end}}}
    parts, lines, version = [chunk(json.dumps(first).encode() + b"\n")], bytearray(), 1
    for phase in PHASES:
        for number in range(pods):
            version += 1
            lines += pod(number, version, phase)
            if len(lines) > 60_000:
                parts.append(chunk(bytes(lines)))
                lines.clear()
    parts.append(chunk(bytes(lines)))
    return parts


async def main(pods: int) -> None:
    parts = stream(pods)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await reader.readline()) not in (b"\r\n", b""):
            continue
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        await reader.read()  # until the client disconnects

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
