"""Kubernetes' DNS domain. No API has it, so it is read from the search domains of the operator's own pod."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from seltzer.build.images import DEFAULT_DOMAIN
from seltzer.errors import SeltzerError

VARIABLE: Final = "SELTZER_CLUSTER_DOMAIN"
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST = 100


def find(environ: Mapping[str, str], resolv_conf: Path = Path("/etc/resolv.conf")) -> str:
    """The variable's value; else the domain of this pod's Services; else, outside of Kubernetes, the usual one."""
    if given := environ.get(VARIABLE, "").strip().strip("."):
        if not _valid(given):
            raise SeltzerError(f"{VARIABLE} is {given!r}, not a DNS domain: set it to one like {DEFAULT_DOMAIN}")
        return given
    text = ""
    with suppress(OSError):
        text = resolv_conf.read_text(errors="replace")
    return searched(text) or DEFAULT_DOMAIN


def searched(resolv_conf: str) -> str:
    """The domain D of the search domain `svc.D` that kubelet writes into pods; empty if there is none."""
    domains: list[str] = []
    for line in resolv_conf.splitlines():
        words = line.split()
        if words[:1] == ["search"]:
            domains = [word.lower().rstrip(".") for word in words[1:]]  # the last line counts
    found = (each.removeprefix("svc.") for each in domains if each.startswith("svc."))
    return next((each for each in found if _valid(each)), "")


def _valid(domain: str) -> bool:
    return len(domain) <= _LONGEST and _DOMAIN.fullmatch(domain) is not None
