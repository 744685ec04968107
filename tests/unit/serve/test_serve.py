"""The operator's process reports its health, to people and to programs."""

from __future__ import annotations

import json
import logging
import sys

import aiohttp

from seltzer.controllers import metrics
from seltzer.serve.health import serving
from seltzer.serve.logs import JsonFormatter


def record(message: str, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("seltzer.test", logging.WARNING, "file", 1, message, (), None)
    made.__dict__.update(more)
    return made


def test_a_log_line_is_one_json_object_whatever_is_in_it() -> None:
    line = JsonFormatter().format(record('two\nlines and "quotes"', object="NodeSet/ns/cpu", step="DrainNodes"))
    assert "\n" not in line
    told = json.loads(line)
    assert told["message"] == 'two\nlines and "quotes"'
    assert (told["level"], told["object"], told["step"]) == ("warning", "NodeSet/ns/cpu", "DrainNodes")


def test_an_error_is_reported_with_where_it_came_from() -> None:
    made = record("failed")
    try:
        raise ValueError("no such thing")
    except ValueError:
        made.exc_info = sys.exc_info()
    told = json.loads(JsonFormatter().format(made))
    assert "ValueError: no such thing" in told["error"] and "object" not in told


async def test_health_readiness_and_metrics_are_served() -> None:
    amiss = "the API server can't be reached"
    with metrics.slurm_call("test"):
        pass
    here = "127.0.0.1"
    async with serving(0, lambda: amiss, here) as port, aiohttp.ClientSession(f"http://{here}:{port}") as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(path) as answer:
                return answer.status, await answer.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (503, "the API server can't be reached\n")
        amiss = ""
        assert await get("/readyz") == (200, "ok\n")
        status, told = await get("/metrics")
        assert status == 200 and 'seltzer_slurm_call_seconds_count{call="test"} 1.0' in told
