"""The sandbox's certificates hold against the strictest of checks, and are made once."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from seltzer_sandbox.run import pki
from seltzer_sandbox.run.pki import Authority

HOSTS = ("127.0.0.1", "localhost", "kubernetes.default.svc")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki"), "ca")
    made.create()
    made.issue("server", "kube-apiserver", hosts=HOSTS)
    made.issue("client", "system:node:n1", "system:nodes")
    return made


@pytest.fixture
def fresh(tmp_path: Path) -> Authority:
    made = Authority(tmp_path, "ca")
    made.create()
    return made


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contexts(authority: Authority, server: str, client: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Both sides of a connection, each asking the other for a certificate of this authority, as strictly as can be."""
    both = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    for context, name in zip(both, (server, client), strict=True):
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(authority.certificate)
        context.load_cert_chain(authority.folder / f"{name}.crt", authority.folder / f"{name}.key")
    return both


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Connect the two in memory; returns the server's side."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [server.wrap_bio(up, down, server_side=True), client.wrap_bio(down, up, server_hostname=host)]
    waiting = [sides[1], sides[0]]
    for _ in range(10):
        for side in tuple(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    assert not waiting, "the handshake did not end"
    return sides[0]


@pytest.mark.parametrize("host", HOSTS)
def test_server_and_client_trust_each_other(authority: Authority, host: str) -> None:
    side = shake_hands(*contexts(authority, "server", "client"), host)
    subject = dict(pair for name in (side.getpeercert() or {})["subject"] for pair in name)  # type: ignore[misc]
    assert subject == {"organizationName": "system:nodes", "commonName": "system:node:n1"}


def test_a_server_is_trusted_by_its_own_names_only(authority: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for|mismatch"):
        shake_hands(*contexts(authority, "server", "client"), "10.90.0.1")


def test_a_client_cannot_pass_for_a_server(authority: Authority) -> None:
    server, client = contexts(authority, "client", "client")
    client.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake_hands(server, client, "127.0.0.1")


def test_another_authoritys_certificates_are_not_trusted(authority: Authority, fresh: Authority) -> None:
    fresh.issue("server", "kube-apiserver", hosts=HOSTS)
    fresh.issue("client", "admin")
    server, _ = contexts(fresh, "server", "client")
    _, client = contexts(authority, "server", "client")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "127.0.0.1")


def test_certificates_name_their_issuers_key(authority: Authority) -> None:
    own = load(authority.certificate).extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    for name in ("server", "client"):
        found = load(authority.folder / f"{name}.crt")
        assert found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == own.digest
        found.verify_directly_issued_by(load(authority.certificate))


def test_certificates_are_for_what_they_are_for(authority: Authority) -> None:
    usages = {
        name: set(
            load(authority.folder / f"{name}.crt").extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        )
        for name in ("server", "client")
    }
    both = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert usages == {"server": both, "client": {ExtendedKeyUsageOID.CLIENT_AUTH}}
    names = load(authority.folder / "server.crt").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "kubernetes.default.svc"]
    own = load(authority.certificate).extensions.get_extension_for_class(x509.BasicConstraints)
    assert own.critical and own.value.ca


def test_keys_are_only_for_their_owner(fresh: Authority) -> None:
    fresh.issue("client", "admin")
    pki.create_signing_key(fresh.folder, "tokens")
    pki.write_private(fresh.folder / "kubeconfig", "secret")
    for name in ("ca.key", "client.key", "tokens.key", "kubeconfig"):
        assert (fresh.folder / name).stat().st_mode & 0o777 == 0o600


def test_a_second_call_changes_nothing(fresh: Authority) -> None:
    def make() -> dict[str, bytes]:
        fresh.create()
        fresh.issue("server", "kube-apiserver", hosts=HOSTS)
        pki.create_signing_key(fresh.folder, "tokens")
        return {file.name: file.read_bytes() for file in fresh.folder.iterdir()}

    before = make()
    assert set(before) == {"ca.crt", "ca.key", "server.crt", "server.key", "tokens.key", "tokens.pub"}
    assert make() == before


def test_an_interrupted_pair_is_made_whole(fresh: Authority) -> None:
    fresh.issue("client", "admin")
    fresh.issue("server", "kube-apiserver", hosts=HOSTS)
    (fresh.folder / "client.crt").unlink()  # as after a crash between the key and the certificate
    (fresh.folder / ".client.crt.new").write_bytes(b"half a certif")
    fresh.issue("client", "admin")
    shake_hands(*contexts(fresh, "server", "client"), "127.0.0.1")
    assert not list(fresh.folder.glob(".*"))


def test_an_interrupted_authority_is_made_whole(fresh: Authority) -> None:
    fresh.certificate.unlink()
    fresh.create()
    key = serialization.load_pem_private_key(fresh.key.read_bytes(), None)
    assert load(fresh.certificate).public_key() == key.public_key()


def test_an_interrupted_signing_key_is_made_whole(tmp_path: Path) -> None:
    pki.create_signing_key(tmp_path, "tokens")
    (tmp_path / "tokens.key").unlink()
    pki.create_signing_key(tmp_path, "tokens")
    key = serialization.load_pem_private_key((tmp_path / "tokens.key").read_bytes(), None)
    assert serialization.load_pem_public_key((tmp_path / "tokens.pub").read_bytes()) == key.public_key()


def test_a_kubeconfig_holds_all_it_needs(authority: Authority) -> None:
    made = yaml.safe_load(pki.kubeconfig(authority, "client", "https://127.0.0.1:6443", "seltzer-some"))
    (cluster,), (user,), (context,) = made["clusters"], made["users"], made["contexts"]
    assert made["current-context"] == context["name"] == "seltzer-some"
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}
    assert cluster["cluster"]["server"] == "https://127.0.0.1:6443"
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["user"]["client-certificate-data"]))
    (common,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common.value == "system:node:n1"
    key = serialization.load_pem_private_key(base64.b64decode(user["user"]["client-key-data"]), None)
    assert key.public_key() == certificate.public_key()
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == authority.certificate.read_bytes()
