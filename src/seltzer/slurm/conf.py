"""Reads and writes slurm.conf and files of the same syntax (cgroup.conf, gres.conf, slurmdbd.conf …) as Slurm does.

How Slurm reads such a file limits what can be written: `#` starts a comment even inside quotes, and a backslash escapes
whatever follows it, but both are processed before quotes. A backslash therefore can't protect a quote, a value with
both a quote and a space can't be written, and neither can a newline. `render` refuses these instead of writing a file
that means something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from seltzer.errors import SeltzerError

Pair = tuple[str, str]

_KEY = re.compile(r"[A-Za-z0-9_.]+")
_BARE = re.compile(r"[!-~]+")
# Slurm treats a tab as a space; other control characters have no place in a configuration.
_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_PAIR = re.compile(
    r"\s*(?P<key>[A-Za-z0-9_.]+)\s*(?P<operator>[-*+/]?)=\s*"
    r'(?:"(?P<quoted>[^"]*)"|(?P<bare>\S+))(?=\s|\Z)',
    re.ASCII,
)
_INCLUDE = re.compile(r"include\s", re.ASCII | re.IGNORECASE)
_WORD = re.compile(r"\S+", re.ASCII)
_BEFORE_COMMENT = re.compile(r"(?:[^\\#]+|\\.?)*")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*(\\)\s*\Z", re.ASCII)
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


class ConfError(SeltzerError):
    """A configuration that can't be written such that Slurm reads it back, or a file that Slurm can't read."""


@dataclass(frozen=True, slots=True)
class Line:
    """`NodeSet=gpu Feature=gpu`: the first pair says what the line is about.

    Slurm accepts more than one pair only if the first key is a kind of thing (NodeName, PartitionName, Name …).
    """

    pairs: tuple[Pair, ...]

    @property
    def key(self) -> str:
        return self.pairs[0][0]

    @property
    def value(self) -> str:
        return self.pairs[0][1]

    def get(self, key: str) -> str | None:
        """The value of one of its keys, case-insensitive; the last one counts, as in Slurm."""
        return next((value for name, value in reversed(self.pairs) if name.lower() == key.lower()), None)


@dataclass(frozen=True, slots=True)
class Include:
    """Another file, included here; Slurm replaces `%c` in the path by the cluster's name."""

    path: str


@dataclass(frozen=True, slots=True)
class Conf:
    """The contents of a file, in order, without comments."""

    lines: tuple[Line | Include, ...] = ()

    @classmethod
    def of(cls, settings: Iterable[Pair]) -> Conf:
        """A file with one pair on each line."""
        return cls(tuple(Line((pair,)) for pair in settings))

    def about(self, key: str) -> list[Line]:
        """All lines that begin with this key, case-insensitive."""
        return [line for line in self.lines if isinstance(line, Line) and line.key.lower() == key.lower()]

    def get(self, key: str) -> str | None:
        """The effective setting: the last one. Settings in included files aren't known here."""
        lines = self.about(key)
        return lines[-1].value if lines else None


def render(conf: Conf, comment: str = "") -> str:
    """The file's text. Slurm reads exactly `conf` from it, whatever the values contain.

    `comment` comes first, each of its lines behind a `#`.
    """
    head = [f"# {_UNFIT.sub('?', line)}".rstrip() for line in comment.split("\n")] if comment else []
    return "".join(f"{line}\n" for line in [*head, *map(_render_line, conf.lines)])


def parse(text: str, name: str = "slurm.conf") -> Conf:
    """Read a file as Slurm would, with clearer error messages, in which the file is called `name`.

    Drops comments, and doesn't open included files. `parse(render(conf)) == conf`.
    """
    return Conf(tuple(_parse_line(line, f"{name} line {number}") for number, line in _logical_lines(text, name)))


def _render_line(line: Line | Include) -> str:
    if isinstance(line, Include):
        if not _BARE.fullmatch(line.path):
            raise ConfError("Include: Slurm can only read a path of printable ASCII without spaces")
        return f"Include {_escape(line.path)}"
    if not line.pairs:
        raise ConfError("a line of a configuration file needs a key and a value")
    return " ".join(f"{_render_key(key)}={_render_value(key, value)}" for key, value in line.pairs)


def _render_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ConfError(f"{key[:60]!r} can't be a key in Slurm's configuration: use letters, digits, _ and .")
    return key


def _render_value(key: str, value: str) -> str:
    """Quoted only if necessary. Error messages leave the value out: it may be secret."""
    unfit = _UNFIT.search(value)
    if unfit:
        raise ConfError(f"{key}: Slurm's configuration can't hold the character {unfit.group()!r} in a value")
    if '"' not in value:
        return _escape(value) if _BARE.fullmatch(value) else f'"{_escape(value)}"'
    if value.startswith('"') or not _BARE.fullmatch(value):
        raise ConfError(f"{key}: Slurm's configuration can't hold a value with a quote first, or a quote and a space")
    return _escape(value)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("#", "\\#")


def _logical_lines(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Lines that aren't empty, numbered: continuations are joined, comments and escapes removed."""
    joined, first = "", 1
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise ConfError(f"{name} line {number}: has a NUL character, where Slurm would stop reading the line")
        before = _BEFORE_COMMENT.match(line)
        assert before
        continued = _CONTINUED.search(before[0])
        joined += before[0][: continued.start(1)] if continued else before[0]
        if continued and number < len(lines):
            continue
        joined = _ESCAPED.sub(r"\1", joined)
        if _WORD.search(joined):
            yield first, joined
        joined, first = "", number + 1


def _parse_line(line: str, where: str) -> Line | Include:
    if _INCLUDE.match(line):
        words = _WORD.findall(line)
        if len(words) != 2:
            raise ConfError(f"{where}: Include takes one path, without spaces")
        return Include(words[1])
    pairs: list[Pair] = []
    at = 0
    while match := _PAIR.match(line, at):
        if match["operator"]:
            raise ConfError(f"{where}: Slurm reads {match['key']}{match['operator']}= as {match['key']}=; write that")
        pairs.append((match["key"], match["bare"] if match["quoted"] is None else match["quoted"]))
        at = match.end()
    if _WORD.search(line, at):
        after = f" after {pairs[-1][0]}" if pairs else ""
        raise ConfError(f"{where}: expected Key=Value{after}; a value with spaces needs quotes")
    return Line(tuple(pairs))
