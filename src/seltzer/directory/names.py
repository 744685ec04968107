"""Distinguished names (RFC 4514) in one spelling, to tell whether two of them name the same entry."""

from __future__ import annotations

import re

_ESCAPED = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
# What ends a part of a DN; an escaped character is passed over.
_PART = re.compile(r"((?:[^\\,;+]|\\.)*)([,;+]|\Z)", re.DOTALL)
# Most DNs have nothing to unify but their case.
_PLAIN = re.compile(
    r"[A-Za-z0-9]+=[^\\,;+=\"# ]+(?: [^\\,;+=\"# ]+)*(?:,[A-Za-z0-9]+=[^\\,;+=\"# ]+(?: [^\\,;+=\"# ]+)*)*"
)
_SPACES, _SPECIAL = re.compile(" +"), re.compile(r"[\\,;+=\"#]")
# What a value of uniqueMember may have after its DN.
_BITS = re.compile(r"#'[01]*'B\Z")


def same(dn: str) -> str:
    """Equal for two DNs exactly if they name one entry, where case and spaces don't matter in attributes.

    What isn't a DN is returned as it is: it names no entry.
    """
    if _PLAIN.fullmatch(dn):
        return dn.casefold()
    parts, rdn, at = [], [], 0
    while at <= len(dn):
        found = _PART.match(dn, at)
        kind, equals, value = found[1].partition("=") if found else ("", "", "")
        if not found or not equals:
            return dn
        rdn.append(f"{kind.strip().casefold()}={_value(value)}")
        if found[2] != "+":
            parts.append("+".join(sorted(rdn)))
            rdn = []
        at = found.end() if found[2] else len(dn) + 1
    return ",".join(parts)


def without_bits(dn: str) -> str:
    return _BITS.sub("", dn)


def _value(value: str) -> str:
    """A value with one spelling for each character that may be escaped, and for spaces that don't count."""
    plain = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else found[2], value.encode())
    words = _SPACES.sub(" ", plain.decode(errors="backslashreplace")).strip(" ").casefold()
    return _SPECIAL.sub(lambda found: f"\\{ord(found[0]):02x}", words)
