"""GPUs come from a pod's limits or claims, and Slurm is prepared for them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import cluster, nodeset

from seltzer.api.nodeset import NodeSet
from seltzer.build import gpus
from seltzer.build.config import ConfigRefused, Rendered, render
from seltzer.build.images import Images
from seltzer.build.merge import TemplateRefused
from seltzer.build.nodeset import pod, template
from seltzer.slurm import conf

IMAGES = Images()
NVIDIA: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": 4}}}


def container(**changes: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "slurmd", **changes}]}}}


CLAIM = {
    "podTemplate": {
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
            "containers": [{"name": "slurmd", "resources": {"claims": [{"name": "gpu"}]}}],
        }
    }
}


def slurmd(spec: dict[str, Any]) -> dict[str, Any]:
    built = pod(nodeset(spec), cluster(), IMAGES, "cpu-0")
    found: dict[str, Any] = next(one for one in built["spec"]["containers"] if one["name"] == "slurmd")
    return found


def told(spec: dict[str, Any]) -> dict[str, str]:
    """What the script in the pod is told about its GPUs, by variable."""
    env = slurmd(spec)["env"]
    return {
        each["name"].removeprefix("SELTZER_GPU_"): each["value"]
        for each in env
        if each["name"].startswith("SELTZER_GPU")
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (NVIDIA, {"RESOURCE": "nvidia.com/gpu", "COUNT": "4"}),
        (container(resources={"limits": {"amd.com/gpu": "8"}}), {"RESOURCE": "amd.com/gpu", "COUNT": "8"}),
        (
            {"resources": {"limits": {"nvidia.com/mig-1g.10gb": 2, "cpu": 1}}, "gpus": {"type": "small"}},
            {"RESOURCE": "nvidia.com/mig-1g.10gb", "COUNT": "2", "TYPE": "small"},
        ),
        ({**NVIDIA, "gpus": {"shards": 6}}, {"RESOURCE": "nvidia.com/gpu", "COUNT": "4", "SHARING": "shard 6"}),
        ({**NVIDIA, "gpus": {"mps": True}}, {"RESOURCE": "nvidia.com/gpu", "COUNT": "4", "SHARING": "mps 100"}),
        ({**CLAIM, "gpus": {"count": 2}}, {"COUNT": "2"}),
        (CLAIM, {}),
        ({"resources": {"limits": {"nvidia.com/gpu": 0}}}, {}),
    ],
)
def test_a_pod_knows_which_gpus_it_was_promised(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert told(spec) == expected


def test_our_script_runs_before_slurmds_in_pods_with_gpus_alone() -> None:
    without, having = slurmd({})["command"], slurmd(NVIDIA)["command"]
    assert having[-len(without) :] == without
    assert having[:2] == ["/bin/bash", "-c"] and "fake_gpus.conf" in having[2]
    assert slurmd(CLAIM)["command"] == having


def test_pods_without_gpus_stay_as_they_are() -> None:
    """The options alone change nothing: no pod is replaced for them."""
    plain = template(nodeset(), cluster(), IMAGES)
    assert template(nodeset({"gpus": {"type": "h200", "shards": 2}}), cluster(), IMAGES) == plain
    assert template(nodeset({"resources": {"limits": {"nvidia.com/gpu": 1}}}), cluster(), IMAGES) != plain
    assert not told({})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"resources": {"limits": {"nvidia.com/gpu": 1}}, **container(resources={"limits": {"amd.com/gpu": 1}})},
            "limits have amd.com/gpu and nvidia.com/gpu: a node has one kind of GPU; make a NodeSet for each",
        ),
        ({"resources": {"limits": {"nvidia.com/gpu": "500m"}}}, "is 500m: write a whole number of GPUs"),
        ({**NVIDIA, "gpus": {"count": 3}}, "gpus.count is 3, and the limits have 4 of nvidia.com/gpu"),
    ],
)
def test_what_slurm_can_not_represent_is_refused_with_what_to_do(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(TemplateRefused, match=r"\w") as refused:
        pod(nodeset(spec), cluster(), IMAGES, "cpu-0")
    assert words in str(refused.value)


def rendered(*nodesets: NodeSet, config: dict[str, str] | None = None) -> Rendered:
    return render(cluster({"config": config or {}}), nodesets)


def setting(found: Rendered, key: str) -> str | None:
    return conf.parse(found.files["slurm.conf"]).get(key)


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({}, None),
        ({"gpus": {"shards": 2}}, None),
        (NVIDIA, "gpu"),
        (CLAIM, "gpu"),
        (container(resources={"limits": {"nvidia.com/mig-1g.10gb": 1}}), "gpu"),
        ({**NVIDIA, "gpus": {"shards": 2}}, "gpu,shard"),
        ({**NVIDIA, "gpus": {"mps": True}}, "gpu,mps"),
        (container(resources={"claims": None, "limits": None}), None),
        (container(resources="nonsense"), None),
        ({"podTemplate": {"spec": {"containers": "nonsense"}}}, None),
    ],
)
def test_slurm_knows_gpus_where_a_nodeset_has_some(spec: dict[str, Any], types: str | None) -> None:
    found = rendered(nodeset(name="cpu"), nodeset(spec, name="gpu"))
    assert setting(found, "GresTypes") == types
    assert ("gres.conf" in found.files) == (gpus.TASK_PROLOG in found.files) == (types is not None)
    assert setting(found, "TaskProlog") == (gpus.TASK_PROLOG if types else None)


def test_the_configuration_of_a_cluster_without_gpus_stays_as_it_is() -> None:
    assert rendered(nodeset()).digest == rendered(nodeset({"gpus": {"type": "h200"}})).digest


def test_slurmd_never_looks_for_gpus_itself_unless_the_user_says_how() -> None:
    having = nodeset(NVIDIA)
    assert rendered(having).files["gres.conf"] == "AutoDetect=off\n"
    theirs = {"gres.conf": "Name=license Count=3\n", "slurm.conf": "GresTypes=license"}
    found = rendered(having, config=theirs)
    assert found.files["gres.conf"] == "AutoDetect=off\nName=license Count=3\n"
    assert setting(found, "GresTypes") == "gpu,license"
    own = {"gres.conf": "AutoDetect=nvml\n", "slurm.conf": "TaskProlog=/opt/site/prolog"}
    found = rendered(having, config=own)
    assert found.files["gres.conf"] == "AutoDetect=nvml\n"
    assert setting(found, "TaskProlog") == "/opt/site/prolog"


def test_shards_and_mps_in_one_cluster_are_refused() -> None:
    shards, mps = (
        nodeset({**NVIDIA, "gpus": {"shards": 2}}, name="a"),
        nodeset({**NVIDIA, "gpus": {"mps": True}}, name="b"),
    )
    with pytest.raises(ConfigRefused, match=r"NodeSet a has gpus\.shards and NodeSet b has gpus\.mps"):
        rendered(shards, mps)
