"""What a user wants on top of our configuration: `spec.config`, read as Slurm will read it, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seltzer.api.config import OWNED
from seltzer.errors import SeltzerError
from seltzer.slurm import conf
from seltzer.slurm.conf import Line, Pair

MAIN = "slurm.conf"
# A line that begins with one of these, or has it in the middle, is about one such thing from there on.
THINGS = frozenset({"nodename", "partitionname", "nodeset", "downnodes"})
_OWNED = {key.lower(): (key, why) for key, why in OWNED.items()}
_FILE = re.compile(r"[a-zA-Z0-9][-_.a-zA-Z0-9]{0,62}")
_SECRET = re.compile(r"(?i).*\.(key|jwks)")
_OURS = "seltzer."
# Plugins and their arguments instead of Key=Value.
_OTHER_FORM = frozenset({"plugstack.conf"})
_INCLUDE = re.compile(r"(?im)^\s*include\s")


class ConfigRefused(SeltzerError):
    """A configuration that isn't even tried. One line: what is wrong and what to do about it."""


@dataclass(frozen=True)
class UserConf:
    """The user's slurm.conf in its parts, and their other files as they are."""

    settings: Mapping[str, Pair]
    """By key in lower case; of a key that is given twice the last one counts, as in Slurm."""
    things: tuple[Line, ...]
    """Lines about nodes, partitions and node sets, in their order."""
    files: Mapping[str, str]


def read(config: Mapping[str, str]) -> UserConf:
    """All files of `spec.config`, checked as far as can be told without starting a slurmctld."""
    for name, text in config.items():
        _check_file(name, text)
    settings: dict[str, Pair] = {}
    things: list[Line] = []
    for line in _statements(parse(config.get(MAIN, ""), MAIN)):
        check_owned(line.pairs, MAIN)
        if line.key.lower() in THINGS:
            things.append(line)
        else:
            settings[line.key.lower()] = line.pairs[0]
    return UserConf(settings, tuple(things), {name: text for name, text in config.items() if name != MAIN})


def parse(text: str, name: str) -> list[Line]:
    """The lines of a file of Slurm's form, none of which leads to another file."""
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
    """One setting or thing each: Slurm takes several settings in one line, and a thing behind them."""
    for line in lines:
        for at, pair in enumerate(line.pairs):
            if pair[0].lower() in THINGS:
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
