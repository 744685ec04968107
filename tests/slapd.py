"""A real directory for tests: Debian's slapd in a folder of its own, on 127.0.0.1."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seltzer_sandbox.run.pki import Authority

SUFFIX = "dc=example,dc=com"
PEOPLE, GROUPS = f"ou=people,{SUFFIX}", f"ou=groups,{SUFFIX}"
ADMIN, PASSWORD = f"cn=admin,{SUFFIX}", b"secret"
# May read 500 entries, and none at all.
SMALL, BLIND = f"cn=small,{SUFFIX}", f"cn=blind,{SUFFIX}"

_SCHEMAS = Path("/etc/ldap/schema")
# rfc2307bis as far as groups need it; Debian has only rfc2307. And keys, which no schema of Debian has.
_BIS = """
attributetype (1.3.6.1.1.1.1.3 NAME 'homeDirectory' EQUALITY caseExactIA5Match
    SYNTAX 1.3.6.1.4.1.1466.115.121.1.26 SINGLE-VALUE)
attributetype (1.3.6.1.1.1.1.4 NAME 'loginShell' EQUALITY caseExactIA5Match
    SYNTAX 1.3.6.1.4.1.1466.115.121.1.26 SINGLE-VALUE)
objectclass (1.3.6.1.1.1.2.0 NAME 'posixAccount' SUP top AUXILIARY
    MUST (cn $ uid $ uidNumber $ gidNumber $ homeDirectory) MAY loginShell)
objectclass (1.3.6.1.1.1.2.2 NAME 'posixGroup' SUP top AUXILIARY MUST gidNumber)
"""
_KEYS = """
attributetype (1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey' EQUALITY octetStringMatch
    SYNTAX 1.3.6.1.4.1.1466.115.121.1.40)
objectclass (1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY MAY (sshPublicKey $ uid))
"""

Attributes = Mapping[str, str | int | Sequence[str]]
Entry = tuple[str, Attributes]


def user(name: str, uid: int, **more: str | int | Sequence[str]) -> Entry:
    """A user of Unix with the group 3000."""
    classes = ["inetOrgPerson", "posixAccount", "ldapPublicKey"]
    attributes: Attributes = {
        "objectClass": classes, "uid": name, "cn": f"{name} of example", "sn": name, "uidNumber": uid,
        "gidNumber": 3000, "homeDirectory": f"/home/{name}", **more,
    }  # fmt: skip
    return f"uid={name},{PEOPLE}", attributes


def group(name: str, gid: int, *members: str) -> Entry:
    """A group of Unix that names its members."""
    attributes: Attributes = {"objectClass": "posixGroup", "cn": name, "gidNumber": gid, "memberUid": members}
    return f"cn={name},{GROUPS}", attributes


@dataclass
class Slapd:
    """One server, of a test that stops it."""

    folder: Path
    entries: Iterable[Entry]
    bis: bool = False
    extra_schemas: Sequence[str] = ()
    host: str = "127.0.0.1"
    # For ldap and for ldaps; by default any that are free.
    ports: tuple[int, int] = (0, 0)
    # What a command begins with that runs where the host's address is.
    inside: Sequence[str] = ()
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def uri(self) -> str:
        return f"ldap://{self.host}:{self.ports[0]}"

    @property
    def secure_uri(self) -> str:
        return f"ldaps://{self.host}:{self.ports[1]}"

    @property
    def authority(self) -> str:
        return (self.folder / "ca.crt").read_text()

    def start(self) -> None:
        authority = Authority(self.folder, "ca")
        authority.create()
        authority.issue("server", "slapd", hosts=(self.host,))
        # A copy: AppArmor restricts the program at its usual path to the folders of the system's directory.
        program = self.folder / "slapd"
        shutil.copy("/usr/sbin/slapd", program)
        (self.folder / "db").mkdir()
        (self.folder / "own.schema").write_text((_BIS if self.bis else "") + _KEYS)
        (self.folder / "slapd.conf").write_text(self._config())
        (self.folder / "all.ldif").write_text(ldif([*_roots(), *self.entries]))
        load = [str(program), "-T", "add", "-q", "-f", "slapd.conf", "-l", "all.ldif"]
        subprocess.run(load, cwd=self.folder, check=True, capture_output=True)
        self.ports = self.ports if any(self.ports) else free_ports()
        self.run()

    def run(self) -> None:
        """With the entries that it has, also again after it was stopped."""
        listen = ["-h", f"{self.uri} {self.secure_uri}"]
        log = (self.folder / "log").open("wb")
        self.process = subprocess.Popen(
            [*self.inside, str(self.folder / "slapd"), "-d", "0", "-f", "slapd.conf", *listen],
            cwd=self.folder,
            stdout=log,
            stderr=log,
        )
        log.close()
        for port in self.ports:
            self._wait_for(port)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def change(self, changes: str) -> None:
        """Change entries, as LDIF describes it, while the server runs."""
        command = [str(self.folder / "slapd"), "-T", "modify", "-f", "slapd.conf"]
        done = subprocess.run(command, cwd=self.folder, input=changes, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    def _wait_for(self, port: int) -> None:
        connect = [*self.inside, "bash", "-c", f"</dev/tcp/{self.host}/{port}"]
        while subprocess.run(connect, stderr=subprocess.DEVNULL, check=False).returncode:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.01)

    def _config(self) -> str:
        schemas = ["core", "cosine", *([] if self.bis else ["nis"]), "inetorgperson", *self.extra_schemas]
        return "\n".join(
            [
                *(f"include {_SCHEMAS / name}.schema" for name in schemas),
                f"include {self.folder}/own.schema",
                "modulepath /usr/lib/ldap",
                "moduleload back_mdb",
                f"pidfile {self.folder}/pid",
                f"TLSCACertificateFile {self.folder}/ca.crt",
                f"TLSCertificateFile {self.folder}/server.crt",
                f"TLSCertificateKeyFile {self.folder}/server.key",
                "sizelimit unlimited",
                "database mdb",
                f"suffix {SUFFIX}",
                f"rootdn {ADMIN}",
                f"rootpw {PASSWORD.decode()}",
                f"directory {self.folder}/db",
                "maxsize 1073741824",
                "index objectClass eq",
                f'limits dn.exact="{SMALL}" size.soft=500 size.hard=500 size.prtotal=500',
                "access to attrs=userPassword by anonymous auth by * none",
                f'access to * by dn.exact="{BLIND}" none by * read',
                "",
            ]
        )


def _roots() -> list[Entry]:
    accounts = [(SMALL, "small"), (BLIND, "blind")]
    return [
        (SUFFIX, {"objectClass": ["dcObject", "organization"], "dc": "example", "o": "example"}),
        (PEOPLE, {"objectClass": "organizationalUnit", "ou": "people"}),
        (GROUPS, {"objectClass": "organizationalUnit", "ou": "groups"}),
        *(
            (dn, {"objectClass": ["organizationalRole", "simpleSecurityObject"], "cn": cn, "userPassword": "secret"})
            for dn, cn in accounts
        ),
    ]


def ldif(entries: Iterable[Entry], change: str = "") -> str:
    """Entries as slapadd reads them, or as changes."""
    lines: list[str] = []
    for dn, attributes in entries:
        lines += [f"dn: {dn}", change] if change else [f"dn: {dn}"]
        for name, values in attributes.items():
            many = [values] if isinstance(values, str | int) else values
            lines += [f"{name}: {value}" for value in many]
        lines.append("")
    return "\n".join(lines)


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        return one.getsockname()[1], two.getsockname()[1]
