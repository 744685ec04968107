"""`seltzer ssh` and `seltzer cp`: which words are whose."""

from __future__ import annotations

import shlex

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from seltzer.cli import main, ssh

ACCESS = ssh.Access("demo.ns.seltzer", "ssh-ed25519 AAAA", ("kubectl", "exec", "--", "sh", "-c", "a 100% 'b'"))


@pytest.mark.parametrize(
    ("words", "divided"),
    [
        ("", ("user", "", "")),
        ("ada", ("ada", "", "")),
        ("ada -A -L 1:x:2", ("ada", "-A -L 1:x:2", "")),
        ("-A -- squeue --me", ("user", "-A", "squeue --me")),
        ("ada -- ls -- -l", ("ada", "", "ls -- -l")),
    ],
)
def test_the_user_comes_first_then_sshs_options_then_the_command(words: str, divided: tuple[str, str, str]) -> None:
    user, options, command = divided
    assert ssh.divide(words.split()) == (user, options.split(), command.split())


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("ada -A -- ls -l", "ada@demo.ns.seltzer -A -- ls -l"),
        ("ada -- -strange", "ada@demo.ns.seltzer -- -strange"),
        ("ada hostname", "ada@demo.ns.seltzer hostname"),
        ("ada -A hostname", "ada@demo.ns.seltzer -A hostname"),
    ],
)
def test_no_word_but_the_clusters_is_taken_for_a_host(monkeypatch: pytest.MonkeyPatch, words: str, given: str) -> None:
    """Without `--`, too, as people write it: ssh takes the first word that is no option for the host."""
    became: list[list[str]] = []
    monkeypatch.setattr(ssh, "_access", lambda *_: ACCESS)
    monkeypatch.setattr(ssh, "_become", lambda program, words: became.append([program, *words]))
    ssh.ssh("demo", *words.split())
    assert became == [["ssh", *ACCESS.options, *given.split()]]


@pytest.mark.parametrize(
    ("words", "arranged"),
    [
        ("ssh demo ada -A -- ls", "ssh demo -- ada -A -- ls"),
        ("ssh --print -n ns demo ada", "ssh --print -n ns demo -- ada"),
        ("cp -n ns -r demo:out .", "cp -n ns -- -r demo:out ."),
        ("cp file demo:", "cp -- file demo:"),
        ("cp --help", "cp --help"),
    ],
)
def test_our_options_come_before_the_others_words(words: str, arranged: str) -> None:
    assert main.arrange(words.split()) == arranged.split()


@pytest.mark.parametrize(
    ("word", "addressed"),
    [
        ("demo:out.txt", "user@host:out.txt"),
        ("ada@demo:/scratch/x", "ada@host:/scratch/x"),
        ("demo:", "user@host:"),
        ("./demo:out", "./demo:out"),
        ("out.txt", "out.txt"),
        ("-r", "-r"),
    ],
)
def test_a_path_on_the_cluster_is_written_as_scp_knows_it(word: str, addressed: str) -> None:
    assert ssh.addressed(word, "host") == addressed


def test_ssh_accepts_no_host_key_but_the_clusters_and_asks_nothing() -> None:
    settings = ACCESS.settings
    assert settings["StrictHostKeyChecking"] == "yes"
    assert settings["KnownHostsCommand"].split()[1:] == ["demo.ns.seltzer", "ssh-ed25519", "AAAA"]
    assert settings["UserKnownHostsFile"] == "/dev/null"
    # ssh replaces %-words in it, then a shell reads it.
    assert shlex.split(settings["ProxyCommand"].replace("%%", "%")) == list(ACCESS.proxy)


def test_a_shared_connection_to_another_cluster_of_this_name_is_not_used() -> None:
    """ControlMaster in ~/.ssh/config: neither the kubeconfig's context nor the login set is part of the alias."""
    assert "ControlPath=none" in ACCESS.options
    assert "ControlPath" not in ssh.entry("demo", "ada", ACCESS)


def test_an_entry_for_sshs_configuration_is_named_like_the_cluster() -> None:
    lines = ssh.entry("demo", "ada", ACCESS).splitlines()
    assert lines[:2] == ["Host demo", "    User ada"]
    assert "    HostKeyAlias demo.ns.seltzer" in lines


def test_the_public_half_of_the_host_key_is_what_known_hosts_has() -> None:
    key = Ed25519PrivateKey.generate()
    formats = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    expected = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert ssh.public_key(key.private_bytes(*formats)) == expected.decode()
