"""The operator finds Kubernetes' DNS domain by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from seltzer.errors import SeltzerError
from seltzer.serve import cluster_domain

POD = "nameserver 10.96.0.10\nsearch seltzer-system.svc.k8s.example.org svc.k8s.example.org k8s.example.org lan\n"


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        (POD, "k8s.example.org"),
        ("search svc.old.\nsearch ns.svc.New. svc.New.\n", "new"),
        ("search lan\n", ""),
        ("search svc.\nsearch\n", ""),
        ("# search svc.cluster.local\n", ""),
        ("", ""),
    ],
)
def test_the_domain_is_read_from_the_search_domains_of_a_pod(text: str, domain: str) -> None:
    assert cluster_domain.searched(text) == domain


def test_a_setting_goes_before_the_file_and_the_usual_domain_comes_last(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    assert cluster_domain.find({}, file) == "cluster.local"
    file.write_text(POD)
    assert cluster_domain.find({}, file) == "k8s.example.org"
    assert cluster_domain.find({cluster_domain.VARIABLE: "example.net."}, file) == "example.net"
    assert cluster_domain.find({cluster_domain.VARIABLE: ""}, file) == "k8s.example.org"


@pytest.mark.parametrize("wrong", ["a b", "-x", "UPPER", "x" * 101, "a..b"])
def test_a_setting_that_is_no_domain_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(SeltzerError, match="SELTZER_CLUSTER_DOMAIN"):
        cluster_domain.find({cluster_domain.VARIABLE: wrong}, tmp_path / "none")
