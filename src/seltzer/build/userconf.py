"""The user's configuration: `spec.config`, parsed as Slurm parses it, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seltzer.api.config import OWNED
from seltzer.errors import SeltzerError
from seltzer.slurm import conf
from seltzer.slurm.conf import Line, Pair

MAIN = "slurm.conf"
# From one of these keys on, the rest of a line defines one node, partition or node set.
DEFINITIONS = frozenset({"nodename", "partitionname", "nodeset", "downnodes"})
_OWNED = {key.lower(): (key, why) for key, why in OWNED.items()}
_FILE = re.compile(r"[a-zA-Z0-9][-_.a-zA-Z0-9]{0,62}")
_SECRET = re.compile(r"(?i).*\.(key|jwks)")
_OURS = "seltzer."
# Files with plugins and their arguments instead of Key=Value.
_OTHER_FORM = frozenset({"plugstack.conf"})
_INCLUDE = re.compile(r"(?im)^\s*include\s")


class ConfigRefused(SeltzerError):
    """A configuration is refused without a trial. The text is one line: what is wrong and what to do about it."""


@dataclass(frozen=True)
class UserConf:
    """The user's slurm.conf, parsed, and the user's other files, unchanged."""

    settings: Mapping[str, Pair]
    """By key in lower case. The last one counts if a key is given twice, as in Slurm."""
    definitions: tuple[Line, ...]
    """Lines that define nodes, partitions and node sets, in order."""
    files: Mapping[str, str]


def read(config: Mapping[str, str]) -> UserConf:
    """All files of `spec.config`, with every check that needs no slurmctld."""
    for name, text in config.items():
        _check_file(name, text)
    settings: dict[str, Pair] = {}
    definitions: list[Line] = []
    for line in _statements(parse(config.get(MAIN, ""), MAIN)):
        check_owned(line.pairs, MAIN)
        if line.key.lower() in DEFINITIONS:
            definitions.append(line)
        else:
            settings[line.key.lower()] = line.pairs[0]
    return UserConf(settings, tuple(definitions), {name: text for name, text in config.items() if name != MAIN})


def parse(text: str, name: str) -> list[Line]:
    """The lines of a file in Slurm's format. Refuses files that include others."""
    try:
        lines = conf.parse(text, name).lines
    except conf.ConfError as error:
        raise ConfigRefused(f"{error}") from None
    if not all(isinstance(line, Line) for line in lines):
        raise ConfigRefused(
            f"{name} includes another file, which can't be checked: write its lines into {name} instead"
        )
    return [line for line in lines if isinstance(line, Line)]


def check_owned(pairs: Iterable[Pair], where: str) -> None:
    """Refuse keys that only Seltzer sets."""
    for key, _ in pairs:
        if key.lower() in _OWNED:
            known, why = _OWNED[key.lower()]
            raise ConfigRefused(f"{where} sets {known}, but {why}")


def _statements(lines: Iterable[Line]) -> Iterable[Line]:
    """One setting or definition per line: Slurm accepts several settings in a line, followed by a definition."""
    for line in lines:
        for at, pair in enumerate(line.pairs):
            if pair[0].lower() in DEFINITIONS:
                yield Line(line.pairs[at:])
                break
            yield Line((pair,))


def _check_file(name: str, text: str) -> None:
    if not _FILE.fullmatch(name):
        raise ConfigRefused(f"config {name[:63]!r} isn't a file name: use letters, digits, dots, hyphens, underscores")
    if name.lower().startswith(_OURS):
        raise ConfigRefused(f"config {name} has a name that Seltzer uses: choose one that doesn't begin with {_OURS}")
    if _SECRET.fullmatch(name):
        raise ConfigRefused(f"config {name}: keys don't belong into a config that all nodes may read: remove the file")
    if name in _OTHER_FORM:
        if _INCLUDE.search(text):
            raise ConfigRefused(f"{name} includes another file, which can't be checked: write its lines into {name}")
    elif name.endswith(".conf"):
        parse(text, name)
