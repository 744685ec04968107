"""Which volumes the pods of a cluster share, and where they are mounted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.builders.objects import cluster, nodeset

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.api.volumes import Mount
from seltzer.build import config, volumes
from seltzer.build import nodeset as nodesets
from seltzer.build.components import login
from seltzer.build.images import Images

SCRATCH = {"name": "scratch", "path": "/scratch", "claim": "scratch"}
DATA = {"name": "data", "path": "/data", "volume": {"nfs": {"server": "files", "path": "/"}}, "readOnly": True}
IMAGES = Images()


def guest(**spec: Any) -> NodeSet:
    return nodeset({"clusterRef": {"name": "demo", "namespace": "ns"}, **spec}, namespace="there")


def mounted(one: NodeSet, of: SlurmCluster) -> dict[str, str]:
    """The volumes of a NodeSet's pods by path: the claim, or another kind of volume."""
    pod = nodesets.pod(one, of, IMAGES, "cpu-0")["spec"]
    kinds = {
        volume["name"]: volume.get("persistentVolumeClaim", {}).get("claimName") or min(volume.keys() - {"name"})
        for volume in pod["volumes"]
    }
    return {each["mountPath"]: kinds[each["name"]] for each in pod["containers"][0]["volumeMounts"]}


def test_login_pods_and_nodes_have_the_home_and_all_mounts() -> None:
    of = cluster({"home": {}, "mounts": [SCRATCH, DATA]})
    expected = {"/home": "demo-home", "/scratch": "scratch", "/data": "nfs"}
    found = mounted(nodeset(), of)
    assert expected.items() <= found.items()
    (deployment,) = (each for each in login.applied(of, IMAGES) if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    mounts = {each["mountPath"]: each for each in pod["containers"][0]["volumeMounts"]}
    assert expected.keys() <= mounts.keys()
    assert mounts["/data"]["readOnly"] is True
    assert "fsGroup" not in pod["securityContext"], "it would take everybody's files"


def test_an_existing_claim_is_mounted_and_none_is_made() -> None:
    of = cluster({"home": {"claim": "files"}})
    assert mounted(nodeset(), of)["/home"] == "files"
    assert volumes.home(of) == []


def test_the_claim_that_we_make_outlives_the_cluster() -> None:
    (claim,) = volumes.home(cluster({"home": {"size": "5Gi", "className": "nfs"}}))
    assert "ownerReferences" not in claim["metadata"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert claim["spec"]["storageClassName"] == "nfs"


def test_a_nodeset_elsewhere_uses_no_claim_of_the_clusters_namespace() -> None:
    found = mounted(guest(), cluster({"home": {}, "mounts": [SCRATCH, DATA]}, allows=["there"]))
    assert "/home" not in found
    assert "/scratch" not in found
    assert found["/data"] == "nfs"


def test_a_nodeset_names_its_own_claims() -> None:
    own = guest(home={"claim": "files"}, mounts=[{**SCRATCH, "claim": "fast"}, {**DATA, "name": "other"}])
    found = mounted(own, cluster({"home": {}, "mounts": [SCRATCH, DATA]}, allows=["there"]))
    assert {"/home": "files", "/scratch": "fast", "/data": "nfs"}.items() <= found.items()


def test_a_cluster_without_volumes_has_the_pods_that_it_had() -> None:
    shared = {"/dev/shm": "emptyDir", "/var/lib/extrausers": "projected"}
    assert mounted(nodeset(), cluster()) == {"/etc/slurm": "secret", **shared}


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        ("/scratch", True),
        ("/data/sets", True),
        ("/opt/apps", True),
        ("/usr/local/apps", True),
        ("/homes", True),
        ("/etc/slurm", False),
        ("/home", False),
        ("/home/ada", False),
        ("/run", False),
        ("/var/lib/extrausers", False),
        ("/usr", False),
        ("/dev/shm", False),
    ],
)
def test_no_mount_hides_files_of_the_image_or_of_slurm(path: str, fits: bool) -> None:
    """The API server checks the rule; the patterns in it mean the same to Python."""
    (rule,) = (rule.rule for rule in Mount.rules if "usr/local" in rule.rule)
    pattern = re.search(r"matches\('([^']+)'\)", rule)
    assert pattern
    assert (not re.search(pattern[1], path) or path.startswith("/usr/local/")) == fits


def test_a_prolog_makes_homes_beside_the_sites_own() -> None:
    rendered = config.render(cluster({"home": {}, "config": {"slurm.conf": "Prolog=/opt/site/prolog\n"}}), ())
    prologs = [line for line in rendered.files["slurm.conf"].splitlines() if line.startswith("Prolog=")]
    assert prologs == ["Prolog=seltzer-home", "Prolog=/opt/site/prolog"]
    assert rendered.files["seltzer-home"].startswith("#!/bin/sh\n")
    assert "Prolog=" not in config.render(cluster(), ()).files["slurm.conf"]


def test_a_prolog_makes_homes_where_only_a_nodeset_has_the_volume() -> None:
    """As long as the cluster's own claim has no volume, too."""
    of = [guest(home={"claim": "files"})]
    assert "Prolog=seltzer-home" in config.render(cluster(), of).files["slurm.conf"]


def test_the_binder_runs_where_the_control_plane_may_and_has_no_sidecars() -> None:
    template = {"spec": {"nodeSelector": {"pool": "a"}, "containers": [{"name": "sssd", "image": "sssd"}]}}
    pod = volumes.binder(cluster({"home": {}, "podTemplate": template}), IMAGES)
    assert pod["spec"]["nodeSelector"] == {"pool": "a"}
    assert [each["name"] for each in pod["spec"]["containers"]] == ["home"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "home"


def test_the_binder_mounts_the_claim_whatever_a_template_makes_of_volumes() -> None:
    for changed in (None, [{"name": "home", "emptyDir": {}}]):
        pod = volumes.binder(cluster({"home": {}, "podTemplate": {"spec": {"volumes": changed}}}), IMAGES)
        assert pod["spec"]["volumes"] == [{"name": "home", "persistentVolumeClaim": {"claimName": "demo-home"}}]
