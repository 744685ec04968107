"""A NodeSet's pods report to Slurm what they really have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.objects import cluster, nodeset

from seltzer.build import names
from seltzer.build.images import Images
from seltzer.build.nodeset import TemplateRefused, budget, pod, support, template
from seltzer.plan.nodeset.membership import MAX_NODES

IMAGES = Images()


def build(spec: dict[str, Any] | None = None, **where: Any) -> dict[str, Any]:
    return pod(nodeset(spec, **where), cluster(), IMAGES, "cpu-0")


def slurmd(built: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in built["spec"]["containers"] if one["name"] == "slurmd")
    return found


def conf(built: dict[str, Any]) -> str:
    args: list[str] = slurmd(built)["args"]
    return args[args.index("--conf") + 1]


def container(**changes: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "slurmd", **changes}]}}}


def test_a_pod_is_its_slurm_node() -> None:
    built = build()
    assert built["metadata"]["name"] == "cpu-0"
    assert built["spec"]["hostname"] == "cpu-0", "without it, the pod has no name in DNS"
    command = slurmd(built)["command"]
    assert command[-5:] == ["-Z", "-N", "$(POD_NAME)", "--conf-server", "demo-slurmctld.ns.svc:6817"]
    name = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    assert {"name": "POD_NAME", "valueFrom": name} in slurmd(built)["env"]


def test_the_budget_is_for_pods_with_jobs_or_for_all_of_the_nodeset() -> None:
    busy, everyone = (budget(nodeset(), cluster(), all_pods=each)["spec"] for each in (False, True))
    ours = names.nodeset_selector(nodeset(), cluster())
    assert busy["selector"] == {"matchLabels": {**ours, "seltzer.dev/busy": "true"}}
    assert everyone["selector"] == {"matchLabels": ours}


@pytest.mark.parametrize("everyone", [False, True])
def test_the_budget_depends_on_no_replicas(everyone: bool) -> None:
    """Kubernetes takes maxUnavailable, and percentages, from the NodeSet's scale: after a scale-in from 10 to 2, eight
    of ten pods with jobs could be evicted. A number of pods is taken as it is."""
    spec = budget(nodeset({"replicas": 2}), cluster(), all_pods=everyone)["spec"]
    assert set(spec) == {"minAvailable", "selector"}
    assert isinstance(spec["minAvailable"], int) and spec["minAvailable"] > MAX_NODES


def test_features_are_the_name_the_set_and_the_users() -> None:
    features = conf(build({"features": ["fast", "cpu", "big"], "weight": 7}))
    assert features.endswith("Weight=7 Feature=cpu,set_cpu,fast,big")


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ({"resources": {"limits": {"cpu": 4, "memory": "8Gi"}}}, "CPUs=4 RealMemory=7632 "),
        ({"resources": {"limits": {"cpu": "2500m"}, "requests": {"memory": "1G"}}}, "CPUs=2 RealMemory=953 "),
        ({"resources": {"limits": {"cpu": 4}, "requests": {"cpu": 1}}}, "CPUs=4 RealMemory=$(SELTZER_MEMORY) "),
        ({"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}, "CPUs=1 RealMemory=64 "),
        ({}, "CPUs=$(SELTZER_CPUS) RealMemory=$(SELTZER_MEMORY) "),
        (container(resources={"limits": {"cpu": "3", "memory": "1Gi"}}), "CPUs=3 RealMemory=912 "),
        (
            {"resources": {"limits": {"cpu": 8, "memory": "1Gi"}}, **container(resources={"limits": {"cpu": 2}})},
            "CPUs=2 RealMemory=912 ",
        ),
        (
            {"resources": {"limits": {"cpu": 8, "memory": "1Gi"}}, **container(resources={"limits": {"cpu": None}})},
            "CPUs=$(SELTZER_CPUS) RealMemory=912 ",
        ),
    ],
)
def test_slurm_is_told_what_the_container_may_use(spec: dict[str, Any], sizes: str) -> None:
    built = build(spec)
    assert conf(built).startswith(sizes)
    defined = {variable["name"] for variable in slurmd(built)["env"]}
    assert {name for name in ("SELTZER_CPUS", "SELTZER_MEMORY") if f"$({name})" in sizes} == defined & {
        "SELTZER_CPUS",
        "SELTZER_MEMORY",
    }


def test_a_limit_of_the_pod_is_told_since_the_container_does_not_see_it() -> None:
    built = build({"podTemplate": {"spec": {"resources": {"limits": {"cpu": 2, "memory": "8Gi"}}}}})
    assert conf(built).startswith("CPUs=2 RealMemory=7632 ")
    assert {"name": "SELTZER_MEMORY_LIMIT", "value": str(8 << 30)} in slurmd(built)["env"]
    assert "SELTZER_MEMORY_LIMIT" not in {variable["name"] for variable in slurmd(build({}))["env"]}


SHM = {"medium": "Memory", "sizeLimit": "5Gi"}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, {"medium": "Memory"}),
        ({"resources": {"requests": {"memory": "8Gi"}}}, {"medium": "Memory"}),
        ({"resources": {"limits": {"memory": "8Gi"}}}, {"medium": "Memory", "sizeLimit": "4096Mi"}),
        ({"resources": {"limits": {"memory": "1Mi"}}}, {"medium": "Memory", "sizeLimit": "1Mi"}),
        (container(resources={"limits": {"memory": "3Gi"}}), {"medium": "Memory", "sizeLimit": "1536Mi"}),
        (
            {
                "resources": {"limits": {"memory": "8Gi"}},
                "podTemplate": {"spec": {"volumes": [{"name": "shm", "emptyDir": SHM}]}},
            },
            SHM,
        ),
    ],
)
def test_shared_memory_is_half_of_the_memory_that_slurmd_may_use(spec: dict[str, Any], wanted: dict[str, str]) -> None:
    built = build(spec)
    assert {"name": "shm", "mountPath": "/dev/shm"} in slurmd(built)["volumeMounts"]
    (volume,) = [each for each in built["spec"]["volumes"] if each["name"] == "shm"]
    assert volume["emptyDir"] == wanted


def test_a_user_may_bring_shared_memory_of_another_kind() -> None:
    mount = {"name": "mine", "mountPath": "/dev/shm"}
    volumes = [{"name": "mine", "emptyDir": {}}]
    template = {"containers": [{"name": "slurmd", "volumeMounts": [mount]}], "volumes": volumes}
    mounts = slurmd(build({"podTemplate": {"spec": template}}))["volumeMounts"]
    assert [each for each in mounts if each["mountPath"] == "/dev/shm"] == [mount]


def test_what_nobody_asks_for_is_asked_for_a_little() -> None:
    assert slurmd(build())["resources"] == {"requests": {"cpu": "100m", "memory": "64Mi"}}
    limits = {"cpu": "1", "memory": "1Gi"}
    assert slurmd(build({"resources": {"limits": limits}}))["resources"].get("requests", {}) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"replicas": 5},
        {"drain": {"timeout": "1h"}},
        {"update": {"paused": True}},
        {"partition": {"name": "other", "options": "MaxTime=1"}},
    ],
)
def test_what_is_not_in_a_pod_does_not_change_its_template(changed: dict[str, Any]) -> None:
    assert template(nodeset(changed), cluster(), IMAGES) == template(nodeset(), cluster(), IMAGES)


@pytest.mark.parametrize(
    "changed",
    [
        {"image": "mine"},
        {"features": ["a"]},
        {"weight": 2},
        {"resources": {"limits": {"cpu": 1}}},
        {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}},
        container(env=[{"name": "A", "value": "1"}]),
    ],
)
def test_what_is_in_a_pod_changes_its_template(changed: dict[str, Any]) -> None:
    assert template(nodeset(changed), cluster(), IMAGES) != template(nodeset(), cluster(), IMAGES)


def test_a_new_image_of_the_operators_changes_the_template() -> None:
    assert template(nodeset(), cluster(), Images({"slurmd": "new"})) != template(nodeset(), cluster(), IMAGES)


def test_the_label_is_the_template_and_the_name_makes_no_difference() -> None:
    one, two = (pod(nodeset(), cluster(), IMAGES, name) for name in ("cpu-0", "cpu-1"))
    assert one["metadata"]["labels"][names.TEMPLATE] == template(nodeset(), cluster(), IMAGES)
    assert len(one["metadata"]["labels"][names.TEMPLATE]) <= 63
    assert {**one["spec"], "hostname": ""} == {**two["spec"], "hostname": ""}
    assert one["metadata"]["labels"] == two["metadata"]["labels"]


def test_our_labels_cannot_be_changed() -> None:
    theirs = {"podTemplate": {"metadata": {"labels": {names.NODESET: "x", names.TEMPLATE: "x", "mine": "yes"}}}}
    labels = build(theirs)["metadata"]["labels"]
    assert labels["mine"] == "yes"
    assert labels.items() >= names.nodeset_selector(nodeset(), cluster()).items()
    assert labels[names.TEMPLATE] == template(nodeset(theirs), cluster(), IMAGES)


def test_arguments_of_the_users_go_to_slurmd_behind_ours() -> None:
    assert slurmd(build(container(args=["-vvv"])))["args"][-1] == "-vvv"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"podTemplate": {"spec": {"containers": None}}}, "removes slurmd"),
        (container(image=None), "removes slurmd"),
        ({"podTemplate": {"spec": {"hostname": "x"}}}, "podTemplate.spec.hostname"),
        ({"podTemplate": {"spec": {"dnsConfig": "x"}}}, "podTemplate.spec.dnsConfig"),
        ({"podTemplate": {"spec": {"dnsConfig": {"searches": "x"}}}}, "podTemplate.spec.dnsConfig.searches"),
        ({"podTemplate": {"spec": {"dnsConfig": {"searches": [1]}}}}, "podTemplate.spec.dnsConfig.searches"),
        (container(resources={"limits": {"cpu": "lots"}}), "the slurmd container's cpu: 'lots' isn't a quantity"),
    ],
)
def test_a_template_that_takes_away_what_the_pod_needs_is_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(TemplateRefused) as refused:
        build(spec)
    assert words in str(refused.value)


KEYS = st.sampled_from(
    ["containers", "name", "env", "volumes", "image", "args", "resources", "limits", "requests", "cpu", "tolerations",
     "metadata", "hostname", "dnsConfig", "searches"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.integers() | st.booleans() | st.text(max_size=3) | st.sampled_from(["slurmd", "keys"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_any_template_gives_a_pod_or_a_reason(spec: dict[str, Any]) -> None:
    try:
        built = build({"podTemplate": {"spec": spec}})
    except TemplateRefused as refused:
        assert "\n" not in str(refused)
    else:
        json.dumps(built)
        assert slurmd(built)["image"]


def test_beside_its_cluster_a_nodeset_needs_nothing_else() -> None:
    assert support(nodeset(), cluster(), b"key") == []
    assert build()["spec"]["volumes"][0]["secret"]["secretName"] == "demo-keys"


def test_elsewhere_it_brings_the_key_and_is_reached_by_its_cluster_only() -> None:
    away = nodeset(namespace="team")
    secret, policy = support(away, cluster({"nodeSets": {"namespaces": ["team"]}}), b"key")
    built = pod(away, cluster(), IMAGES, "cpu-0")
    assert built["metadata"]["namespace"] == "team"
    assert built["spec"]["volumes"][0]["secret"]["secretName"] == secret["metadata"]["name"] == "cpu-slurm-key"
    assert secret["data"] == {"slurm.key": "a2V5"}
    for manifest in (secret, policy):
        assert manifest["metadata"]["namespace"] == "team"
        assert manifest["metadata"]["ownerReferences"][0]["kind"] == "NodeSet"
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= built["metadata"]["labels"].items()
    froms = policy["spec"]["ingress"][0]["from"]
    assert [peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in froms] == [
        "ns", "ns", "ns", "team",
    ]  # fmt: skip


def test_without_cgroups_pods_are_what_they_were() -> None:
    """Their template's hash decides whether they are replaced."""
    built = build()
    assert built["spec"]["shareProcessNamespace"] is True
    assert "/sys/fs/cgroup" not in slurmd(built)["command"][2]


def test_with_cgroups_the_container_prepares_them_and_reaps_its_processes_itself() -> None:
    built = pod(nodeset(), cluster({"cgroups": "v2"}), IMAGES, "cpu-0")
    assert built["spec"]["shareProcessNamespace"] is False, "Slurm looks for its cgroup at PID 1"
    script = slurmd(built)["command"][2]
    assert script.endswith(slurmd(build())["command"][2])
    assert script.index("/sys/fs/cgroup") < script.index("while :;")
    assert slurmd(built)["securityContext"] == slurmd(build())["securityContext"], "no more rights than before"


def test_with_cgroups_processes_are_not_shared() -> None:
    shared = {"podTemplate": {"spec": {"shareProcessNamespace": True}}}
    build(shared)
    with pytest.raises(TemplateRefused, match="shareProcessNamespace"):
        pod(nodeset(shared), cluster({"cgroups": "v2"}), IMAGES, "cpu-0")


def test_the_runtime_class_is_the_users() -> None:
    wanted = {"podTemplate": {"spec": {"runtimeClassName": "cgroups"}}}
    built = pod(nodeset(wanted), cluster({"cgroups": "v2"}), IMAGES, "cpu-0")
    assert built["spec"]["runtimeClassName"] == "cgroups"
