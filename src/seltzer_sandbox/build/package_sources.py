"""Where this machine gets its packages from; image builds use the same sources.

A build runs its own apt and pip, without the machine's mirror, proxy or certificates. This module reads these from
the machine's settings. A build receives them as secrets: neither the repository nor an image contains them.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seltzer_sandbox import shell

CA_BUNDLE = "/run/secrets/ca.crt"  # where a build finds the secret with the machine's certificates
# Paths of the machine don't exist inside a build; the certificates are passed as a secret instead.
_PATHS = re.compile(r"::(CaInfo|CaPath|CrlFile|SslCert|SslKey|Proxy-Auto-?Detect)$", re.IGNORECASE)
_ACQUIRE = re.compile(r"Acquire::(https?::.+|Check-[\w-]+|Max-[\w-]+|Retries)$", re.IGNORECASE)
_PIP = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")


@dataclass(frozen=True)
class Source:
    """One package source of apt."""

    uri: str
    suite: str
    components: tuple[str, ...]


def debian_mirror(etc: Path = Path("/etc")) -> str | None:
    """This machine's Debian mirror; None if it is not Debian or has no mirror that a build can reach."""
    release = _os_release(etc / "os-release")
    if release.get("ID") != "debian":
        return None
    suites = {release.get("VERSION_CODENAME"), "stable", "testing", "unstable", "sid"}
    for source in sources(etc / "apt"):
        if source.suite in suites and "main" in source.components and source.uri.startswith(("http://", "https://")):
            return source.uri
    return None


def sources(apt: Path) -> list[Source]:
    """The sources in apt's configuration folder, in apt's order; reads both file formats."""
    found: list[Source] = []
    parts = sorted((apt / "sources.list.d").glob("*"), key=lambda file: file.name)
    for file in (apt / "sources.list", *parts):
        if file.suffix not in (".list", ".sources") or not file.is_file():
            continue
        parse = parse_deb822 if file.suffix == ".sources" else parse_one_line
        found += parse(file.read_text(encoding="utf-8", errors="replace"))
    return found


def parse_one_line(text: str) -> list[Source]:
    """`deb [option=value ...] uri suite component ...`"""
    found = []
    for line in text.splitlines():
        plain = re.sub(r"\[[^\]]*\]", " ", line.split("#", 1)[0])
        match plain.split():
            case ["deb", uri, suite, *components]:
                found.append(Source(uri.rstrip("/"), suite, tuple(components)))
    return found


def parse_deb822(text: str) -> list[Source]:
    """Paragraphs of `Key: value`; indented lines continue a value, and comments may be anywhere."""
    found = []
    for paragraph in _paragraphs(text):
        if "deb" not in paragraph.get("types", "").split() or paragraph.get("enabled", "yes").lower() in _NO:
            continue
        for uri in paragraph.get("uris", "").split():
            for suite in paragraph.get("suites", "").split():
                found.append(Source(uri.rstrip("/"), suite, tuple(paragraph.get("components", "").split())))
    return found


_NO = frozenset(("no", "false", "without", "off", "disable", "0"))


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    key = ""
    for line in (*text.splitlines(), ""):
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, key = {}, ""
        elif line[0].isspace():
            if key:
                fields[key] += f" {line.strip()}"
        else:
            name, _, value = line.partition(":")
            key = name.strip().lower()
            fields[key] = value.strip()


def _os_release(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    pairs = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines() if "=" in line)
    return {key: "".join(shlex.split(value)) for key, _, value in pairs}


def apt_settings(log: Path) -> str:
    """The machine's apt settings for downloads (proxies, date checks), as a configuration file for a build."""
    dump = shell.run(["apt-config", "dump"], doing="reading apt's settings", log=log, deadline=30)
    return keep_apt_settings(dump.splitlines())


def keep_apt_settings(dump: Iterable[str]) -> str:
    kept = []
    for line in dump:
        key, _, value = line.partition(" ")
        if _ACQUIRE.match(key) and not _PATHS.search(key) and value not in ('"";', ""):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def ca_bundle(env: Mapping[str, str] = os.environ) -> Path | None:
    """The file with the CA certificates that this machine trusts."""
    candidates = (env.get("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem")
    return next((Path(path) for path in candidates if path and Path(path).is_file()), None)


def pip_settings(env: Mapping[str, str] = os.environ, files: Iterable[Path] | None = None) -> dict[str, str]:
    """The machine's package index settings for pip or uv; empty if both use their defaults."""
    found: dict[str, str] = {}
    for file in _pip_files(env) if files is None else files:
        found |= _pip_file(file)
    if index := env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL"):
        found.setdefault("index-url", index)
    for key in _PIP:
        if value := env.get(f"PIP_{key.upper().replace('-', '_')}"):
            found[key] = value
    return found


def _pip_files(env: Mapping[str, str]) -> list[Path]:
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    own = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    given = [Path(env["PIP_CONFIG_FILE"])] if env.get("PIP_CONFIG_FILE") else []
    return [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"), home / ".pip/pip.conf", own, *given]


def _pip_file(file: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except configparser.Error:  # pip reports the error when it runs
        return {}
    sections = [section for section in ("global", "install") if parser.has_section(section)]
    return {key: value for section in sections for key, value in parser.items(section) if key in _PIP}
