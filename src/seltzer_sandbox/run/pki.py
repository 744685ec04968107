"""Keys, certificates and kubeconfigs of one sandbox. They are created once and removed with its folder."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a folder: NAME.crt and NAME.key."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def create(self) -> None:
        """Create the authority's certificate, unless it exists."""
        if self.certificate.exists():
            return
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"seltzer sandbox {self.name}", None)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        signed = (
            _builder(subject, subject, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write_pair(self.key, key, self.certificate, signed)

    def issue(self, name: str, user: str, group: str | None = None, hosts: tuple[str, ...] = ()) -> None:
        """Create NAME.crt and NAME.key for a client, and for a server too if it has hosts, unless they exist."""
        certificate = self.folder / f"{name}.crt"
        if certificate.exists():
            return
        issuer = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        signer = serialization.load_pem_private_key(self.key.read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])
        # Python 3.13 and newer refuse a certificate that does not name its issuer's key.
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = (
            _builder(_subject(user, group), issuer.subject, key)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer_key, critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        _write_pair(self.folder / f"{name}.key", key, certificate, builder.sign(signer, hashes.SHA256()))


def create_signing_key(folder: Path, name: str) -> None:
    """A key pair without a certificate, for ServiceAccount tokens: NAME.key and NAME.pub."""
    path = folder / f"{name}.key"
    if path.exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pub").write_bytes(public)
    _write_key(path, key)


def kubeconfig(authority: Authority, user: str, server: str, context: str) -> str:
    """A kubeconfig with embedded credentials, which can be copied anywhere."""

    def embed(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    credentials = {
        "client-certificate-data": embed(authority.folder / f"{user}.crt"),
        "client-key-data": embed(authority.folder / f"{user}.key"),
    }
    cluster = {"server": server, "certificate-authority-data": embed(authority.certificate)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": cluster}],
            "users": [{"name": context, "user": credentials}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "current-context": context,
        },
        sort_keys=False,
    )


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.touch(mode=0o600)
    scratch.write_bytes(content.encode() if isinstance(content, str) else content)
    scratch.rename(path)


def _write_pair(
    key_path: Path, key: ec.EllipticCurvePrivateKey, certificate_path: Path, certificate: x509.Certificate
) -> None:
    # The certificate is written last: if it exists, the pair is complete.
    _write_key(key_path, key)
    write_private(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    plain = serialization.NoEncryption()
    write_private(
        path, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID)
    )


def _subject(user: str, group: str | None) -> x509.Name:
    organisation = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*organisation, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
