"""The health checks of a NodeSet: the ConfigMap that its pods mount, and the Prolog and Epilog that run some of them.

The checks are no part of the pod template: a changed list replaces no pod. Only the first one does, since it brings the
mount, and so does the removal of the last one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources as files
from typing import Final

from seltzer.api.checks import Check
from seltzer.api.common import seconds
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import names, pods
from .names import Manifest

FOLDER: Final = "/etc/seltzer/checks"
RUNNER: Final = "runner"
_COMPONENT: Final = "slurmd"
_VOLUME: Final = "checks"
_RUNNER: Final = files.files(__package__).joinpath("check_runner.sh").read_text()
_LIBRARY: Final = files.files(__package__).joinpath("check_library.sh").read_text()
_HOOKS: Final = {"before": ("Prolog", "seltzer-before"), "after": ("Epilog", "seltzer-after")}
# slurmctld sends it to all nodes. Those without checks have no runner.
_HOOK: Final = """#!/bin/sh
[ -r {runner} ] || exit 0
exec /bin/bash {runner} {when}
"""


def config_map(nodeset: NodeSet, cluster: SlurmCluster) -> Manifest:
    """The ConfigMap with the checks, and with what runs them."""
    data = _data(nodeset)
    annotations = {names.CHECKSUM: digest(nodeset)}
    head = names.manifest(
        "ConfigMap",
        "v1",
        cluster,
        _COMPONENT,
        names.nodeset_checks(nodeset),
        more_labels={names.NODESET: nodeset.metadata.name},
        annotations=annotations,
        owner=nodeset,
    )
    return {**head, "data": data}


def digest(nodeset: NodeSet) -> str:
    """Changes when a pod's files have to."""
    return pods.checksum(*(part for pair in sorted(_data(nodeset).items()) for part in pair))


def volumes(nodeset: NodeSet) -> list[Manifest]:
    """The volume of a pod; none without checks."""
    if not nodeset.spec.checks:
        return []
    return [{"name": _VOLUME, "configMap": {"name": names.nodeset_checks(nodeset), "defaultMode": 0o444}}]


def mounts(nodeset: NodeSet) -> list[Manifest]:
    """Its mount in slurmd's container."""
    return [{"name": _VOLUME, "mountPath": FOLDER, "readOnly": True}] if nodeset.spec.checks else []


def command(nodeset: NodeSet, slurmd: Sequence[str]) -> list[str]:
    """slurmd's command, after the checks that come before it."""
    return ["/bin/bash", f"{FOLDER}/{RUNNER}", "slurmd", *slurmd] if nodeset.spec.checks else [*slurmd]


def hooks(nodesets: Iterable[NodeSet]) -> Mapping[str, tuple[str, str]]:
    """The scripts that slurmd runs before and after each job: by key of slurm.conf, a file's name and its content."""
    used = {check.when for nodeset in nodesets for check in nodeset.spec.checks}
    return {
        key: (name, _HOOK.format(runner=f"{FOLDER}/{RUNNER}", when=when))
        for when, (key, name) in _HOOKS.items()
        if when in used
    }


def _data(nodeset: NodeSet) -> dict[str, str]:
    return {
        RUNNER: _RUNNER,
        "library": _LIBRARY,
        "list": "".join(map(_line, nodeset.spec.checks)),
        **{f"check.{check.name}": f"{_script(check)}\n" for check in nodeset.spec.checks},
    }


def _line(check: Check) -> str:
    words = (check.name, check.when, check.on_fail, seconds(check.interval), seconds(check.timeout))
    return " ".join(map(str, words)) + "\n"


def _script(check: Check) -> str:
    return shlex.join([f"check_{check.use}", *check.args]) if check.use else check.command or ""
