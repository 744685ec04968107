"""What decodes, what is refused, and what comes back the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, ValidationError, inspect

from seltzer.api.common import PodTemplate, Resources, seconds
from seltzer.api.core import Event, Lease, Node, Pod
from seltzer.api.login import Login
from seltzer.api.nodeset import ClusterRef, Drain, NodeSet, NodeSetSpec, NodeSetStatus, Partition, Update
from seltzer.api.slurmcluster import Controller, Rest, SlurmCluster, SlurmClusterSpec, SlurmClusterStatus


def cluster(spec: Any) -> SlurmCluster:
    manifest = {"apiVersion": "seltzer.dev/v1alpha1", "kind": "SlurmCluster", "metadata": {"name": "a"}, "spec": spec}
    return msgspec.json.decode(msgspec.json.encode(manifest), type=SlurmCluster)


def test_an_empty_spec_has_all_defaults() -> None:
    spec = cluster({}).spec
    assert spec == SlurmClusterSpec(controller=Controller(), rest=Rest(replicas=1), login=Login(replicas=1))
    assert spec.cluster_name is None, "metadata.name is the default"
    assert spec.controller.storage.on_delete == "retain"
    assert spec.pod_template == PodTemplate()


def test_a_controller_is_alone_keeps_jobs_and_runs_unless_it_is_said() -> None:
    usual = cluster({}).spec.controller
    assert (usual.standby, usual.lease_duration, usual.keep_jobs, usual.hold) == (0, "3s", True, False)
    other = cluster({"controller": {"standby": 2, "leaseDuration": "1m", "keepJobs": False, "hold": True}})
    assert other.spec.controller == Controller(standby=2, lease_duration="1m", keep_jobs=False, hold=True)


def test_a_nodeset_needs_nothing_but_its_cluster() -> None:
    spec = msgspec.convert({"clusterRef": {"name": "demo"}}, NodeSetSpec)
    assert (spec.replicas, spec.weight, spec.features, spec.resources) == (None, 1, (), Resources())
    assert (spec.partition, spec.drain, spec.update) == (Partition(enabled=True), Drain(on_timeout="wait"), Update())
    with pytest.raises(ValidationError, match="clusterRef"):
        msgspec.convert({}, NodeSetSpec)


def test_a_field_of_a_newer_crd_is_ignored() -> None:
    assert cluster({"fromTheFuture": 1, "controller": {"andMore": 1}}).spec == SlurmClusterSpec()


def test_another_kind_or_version_is_refused() -> None:
    for manifest in ({"kind": "NodeSet", "metadata": {}}, {"apiVersion": "seltzer.dev/v2", "metadata": {}}):
        with pytest.raises(ValidationError):
            msgspec.convert(manifest, SlurmCluster)


@pytest.mark.parametrize(
    "name", ["a;drop", "../x", "a" * 41, "a" * 65, "", "A", "1a", "a-", "a b", "a\n", "é", "a'b", "a/b"]
)
def test_a_cluster_name_that_could_harm_sql_or_files_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="clusterName"):
        cluster({"clusterName": name})


@pytest.mark.parametrize("name", ["a", "demo", "physics_2", "a-b", "a" * 40])
def test_a_good_cluster_name_is_taken(name: str) -> None:
    assert cluster({"clusterName": name}).spec.cluster_name == name


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": -1},
        {"replicas": 65537},
        {"replicas": "2"},
        {"weight": 0},
        {"features": ["a,b"]},
        {"features": ["a\n"]},
        {"partition": {"options": "Default=YES\n"}},
        {"partition": {"options": 'A="b c"'}},
        {"partition": {"options": "A=b # c"}},
        {"drain": {"timeout": "1"}},
        {"drain": {"timeout": ""}},
        {"drain": {"timeout": "5m1h"}},
        {"update": {"maxUnavailable": "101%"}},
        {"update": {"maxUnavailable": -1}},
        {"resources": {"limits": {"cpu": "lots"}}},
        {"resources": {"limits": {"memory": "1Gi\n"}}},
        {"image": "-x"},
    ],
)
def test_a_bad_nodeset_is_refused(spec: Any) -> None:
    with pytest.raises(ValidationError):
        msgspec.convert({"clusterRef": {"name": "demo"}, **spec}, NodeSetSpec)


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("15m", 900), ("1h30m", 5400), ("1h1m1s", 3661), ("0s", 0)])
def test_durations(text: str, value: int) -> None:
    assert seconds(msgspec.convert({"timeout": text}, Drain).timeout or "") == value


def test_a_spec_writes_only_what_differs_from_its_defaults() -> None:
    spec = NodeSetSpec(cluster_ref=ClusterRef(name="demo"), drain=Drain(timeout="1h"))
    assert msgspec.to_builtins(spec) == {"clusterRef": {"name": "demo"}, "drain": {"timeout": "1h"}}


def test_a_status_writes_zeros_but_not_what_is_not_known() -> None:
    written = msgspec.to_builtins(SlurmClusterStatus())
    assert written["jobs"] == {"running": 0, "pending": 0}
    assert not {"slurmVersion", "lastFailoverTime"} & set(written)
    assert SlurmClusterStatus().slurm_version is UNSET
    assert msgspec.to_builtins(NodeSetStatus())["replicas"] == 0


def values(info: inspect.Type) -> st.SearchStrategy[Any]:
    """JSON that fits a type, within its bounds."""
    match info:
        case inspect.Metadata(type=inner):
            return values(inner)
        case inspect.UnionType(types=types):
            return st.one_of([values(kind) for kind in types if not isinstance(kind, inspect.NoneType)])
        case inspect.StructType(fields=fields):
            required = {field.encode_name: values(field.type) for field in fields if field.required}
            optional = {field.encode_name: values(field.type) for field in fields if not field.required}
            return st.fixed_dictionaries(required, optional=optional)
        case inspect.LiteralType(values=choices):
            return st.sampled_from(choices)
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(ge=least, le=most):
            return st.integers(least if least is not None else -(2**53), most if most is not None else 2**53)
        case inspect.StrType(pattern=None, min_length=least, max_length=most):
            return st.text(min_size=least or 0, max_size=min(most or 20, 20))
        case inspect.StrType(pattern=str(pattern), min_length=least, max_length=most):
            fits = st.from_regex(pattern)
            return fits.filter(lambda text: (least or 0) <= len(text) <= (most or len(text)))
        case inspect.VarTupleType(item_type=item, min_length=least):
            return st.lists(values(item), min_size=least or 0, max_size=3)
        case inspect.DictType(value_type=inspect.AnyType()):
            return st.dictionaries(
                st.text(max_size=5), st.none() | st.integers(0, 9) | st.lists(st.booleans()), max_size=3
            )
        case inspect.DictType(value_type=value):
            return st.dictionaries(st.text(max_size=5), values(value), max_size=3)
    raise AssertionError(info)


@pytest.mark.parametrize("kind", [SlurmCluster, NodeSet, Pod, Node, Lease, Event])
@settings(max_examples=25)  # each draws a whole object
@given(data=st.data())
def test_what_is_read_and_written_reads_the_same(kind: type[Any], data: st.DataObject) -> None:
    raw = data.draw(values(inspect.type_info(kind)))
    first = msgspec.json.decode(msgspec.json.encode(raw), type=kind)
    written = msgspec.json.encode(first)
    assert msgspec.json.decode(written, type=kind) == first
    assert msgspec.json.encode(msgspec.json.decode(written, type=kind)) == written


def test_a_projection_keeps_what_we_read_and_drops_the_rest() -> None:
    pod = msgspec.convert(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "cpu-0",
                "labels": {"a": "b"},
                "managedFields": [{}],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "NodeSet", "name": "cpu", "uid": "u", "controller": True}
                ],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "slurmd"}]},
            "status": {
                "phase": "Running",
                "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None}],
                "containerStatuses": [
                    {
                        "name": "slurmd",
                        "ready": False,
                        "restartCount": 2,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    }
                ],
            },
        },
        Pod,
    )
    assert (pod.spec.node_name, pod.status.pod_ip, pod.metadata.owner_references[0].controller) == (
        "n1",
        "10.0.0.1",
        True,
    )
    (container,) = pod.status.container_statuses
    assert container.state.waiting and container.state.waiting.reason == "CrashLoopBackOff"
    assert "containers" not in msgspec.to_builtins(pod)["spec"]


@pytest.mark.parametrize("kind", [Pod, Node, Lease, Event])
def test_an_object_in_the_middle_of_its_making_decodes(kind: type[Any]) -> None:
    assert msgspec.convert({"metadata": {"name": "x"}}, kind).metadata.name == "x"


def test_a_cordoned_node_shows_it() -> None:
    node = msgspec.convert(
        {
            "metadata": {"name": "n1"},
            "spec": {
                "unschedulable": True,
                "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
            },
        },
        Node,
    )
    assert node.spec.unschedulable and node.spec.taints[0].effect == "NoSchedule"
