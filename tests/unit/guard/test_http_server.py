"""Who may ask for jobs, how, and what happens when squeue doesn't answer."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
from tests.fakes.guard.rig import until
from tests.programs import write_program

from seltzer.controllers.slurmd_probe import AT_ONCE
from seltzer.guard import http_server, slurmd_probe
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Settings, Times
from seltzer.slurm import jobs as slurm_jobs
from seltzer.slurm.token import sign
from seltzer.wire import squeue

KEY = b"k" * 32


class Asked:
    """The endpoint, with a squeue that is a script."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self.folder = folder
        self.squeue = folder / "squeue"
        (folder / "jwt_hs256.key").write_bytes(KEY)
        places = Places(etc=folder, squeue=str(self.squeue), http_port=0)
        settings = Settings("ns", "lease", "slice", "pod", "address", places, Times(squeue=deadline))
        self.unready = ""
        self.server = http_server.serve(settings, Processes(), lambda: self.unready)
        self.port = self.server.server_address[1]

    def script(self, text: str) -> None:
        write_program(self.squeue, f"#!/bin/sh\n{text}\n")

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port)
        headers = {"X-SLURM-USER-TOKEN": sign(KEY, "slurm") if token is None else token}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


@pytest.fixture(scope="module")
def only_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    made = Asked(tmp_path_factory.mktemp("jobs"), 600)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def asked(only_server: Asked) -> Asked:
    only_server.script('printf "%s\\n" "$SLURM_CONF" "$@"')
    return only_server


def with_variable(words: str) -> list[str]:
    """The processes with this in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if words.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
    return found


def token(head: object, claims: object, key: bytes = KEY) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, claims)]
    signature = base64.urlsafe_b64encode(hmac.digest(key, b".".join(parts), hashlib.sha256)).rstrip(b"=")
    return b".".join([*parts, signature]).decode()


def test_the_answer_is_what_squeue_prints(asked: Asked) -> None:
    status, printed = asked.get(f"/jobs/{quote('cpu-[0-3],gpu-1')}")
    conf = str(asked.folder / "seltzer.local.conf")
    assert (status, printed.splitlines()) == (200, [conf, *squeue.jobs_on_nodes("cpu-[0-3],gpu-1")])
    assert asked.get("/jobs/cpu-0,cpu-1")[0] == 200


def test_anybody_may_ask_for_its_health_and_nothing_else_is_there(asked: Asked) -> None:
    assert asked.get("/healthz", "") == (200, "ok\n")
    assert asked.get("/readyz", "") == (200, "ok\n")
    asked.unready = "slurmctld is held"
    assert asked.get("/readyz", "") == (503, "slurmctld is held\n")
    asked.unready = ""
    assert asked.get("/")[0] == 404


NOW = int(time.time())
GOOD: dict[str, Any] = {"iat": NOW, "exp": NOW + 60, "sun": "slurm"}
HS256 = {"alg": "HS256", "typ": "JWT"}


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "..",
        "é.é.é",
        token(HS256, GOOD, b"another key"),
        token({"alg": "none"}, GOOD),
        token(HS256, {**GOOD, "sun": "root"}),
        token(HS256, {**GOOD, "exp": NOW - 1}),
        token(HS256, {**GOOD, "iat": NOW + 3600}),
        token(HS256, {"sun": "slurm"}),
        token(HS256, []),
        token([], GOOD),
        token(HS256, GOOD).rpartition(".")[0] + ".",
    ],
)
def test_a_bad_token_is_refused(bad: str) -> None:
    assert http_server.is_administrator(token(HS256, GOOD), KEY, NOW)
    assert not http_server.is_administrator(bad, KEY, NOW)


def test_without_a_token_nothing_is_run(asked: Asked) -> None:
    asked.script(f"touch {asked.folder}/ran")
    assert asked.get("/jobs/cpu-0", "")[0] == 401
    assert asked.get("/jobs/cpu-0", sign(b"another key", "slurm"))[0] == 401
    assert not (asked.folder / "ran").exists()


@pytest.mark.parametrize("bad", ["", "a b", "a;b", "$(a)", "a\nb", "{a}", "a/b", "ä"])
def test_a_bad_hostlist_is_refused(asked: Asked, bad: str) -> None:
    assert asked.get(f"/jobs/{quote(bad, safe='')}")[0] == 400


def test_a_hostlist_can_not_be_longer_than_64_kb(asked: Asked) -> None:
    assert asked.get("/jobs/" + "a" * 70_000)[0] == 414


def test_a_squeue_that_fails_says_why(asked: Asked) -> None:
    asked.script("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; echo half; exit 1")
    assert asked.get("/jobs/cpu-0") == (503, "slurm_load_jobs error: Unable to contact slurm controller\n")


def test_a_squeue_that_hangs_is_killed(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 0.3)
    asked.script("exec sleep 1000")
    assert asked.get("/jobs/cpu-0") == (503, "squeue did not end within 0.3 s\n")
    assert with_variable(f"SLURM_CONF={tmp_path}/seltzer.local.conf") == []
    asked.server.shutdown()
    asked.server.server_close()


def test_only_a_few_are_asked_at_once(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 600)
    asked.script(f"mktemp -p {tmp_path} ran.XXXXXX; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(asked.get("/jobs/cpu-0")[0])) for _ in range(http_server.AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    until("all run", lambda: len(list(tmp_path.glob("ran.*"))) == http_server.AT_ONCE)
    assert asked.get("/jobs/cpu-0") == (503, "too many requests at once\n")
    assert asked.get("/healthz")[0] == 200
    (tmp_path / "go").touch()
    for thread in threads:
        thread.join()
    assert answers == [200] * http_server.AT_ONCE
    assert asked.get("/jobs/cpu-0")[0] == 200


def test_the_nodes_that_waiting_jobs_name_are_reported_once_each(asked: Asked) -> None:
    asked.script('[ "$2" = --states=PENDING ] && printf "cpu-1\\n\\n\\ncpu-[3-4]\\n\\ncpu-1\\n"')
    status, printed = asked.get("/named")
    assert status == 200
    assert slurm_jobs.parse_named(printed) == {"cpu-1", "cpu-3", "cpu-4"}
    assert asked.get("/named", "")[0] == 401


def test_a_squeue_that_can_not_tell_who_is_named_is_no_empty_answer(asked: Asked) -> None:
    asked.script("echo away >&2; exit 1")
    assert asked.get("/named")[0] == 503


def test_the_operators_longest_question_about_addresses_is_read_and_answered(asked: Asked) -> None:
    longest = [f"2001:0db8:1111:2222:3333:4444:5555:{number:04x}" for number in range(AT_ONCE)]
    with mock.patch.object(slurmd_probe, "answering", lambda _, addresses, **__: addresses[-1:]):
        assert asked.get(f"/alive/6818/{','.join(longest)}") == (200, f"{longest[-1]}\n")


def test_where_not_all_addresses_could_be_asked_none_is_reported(asked: Asked) -> None:
    with mock.patch.object(slurmd_probe, "answering", side_effect=OSError("no room")):
        assert asked.get("/alive/6818/10.0.0.1") == (503, "not all addresses can be probed: no room\n")
