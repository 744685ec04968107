"""The API server takes our CRDs, fills in what our Structs fill in, and refuses what it should with words that help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from msgspec import convert, to_builtins
from tests.harness import Answer, Sandbox, until

from seltzer.api import crd
from seltzer.api.common import API_VERSION, Condition, NodeCounts
from seltzer.api.nodeset import ClusterRef, NodeSet, NodeSetSpec, NodeSetStatus
from seltzer.api.schema import spelled_out
from seltzer.api.slurmcluster import JobCounts, SlurmCluster, SlurmClusterSpec, SlurmClusterStatus
from seltzer.api.status import ControllerStatus, Crash, Recovered, RecoveredJobs, Recovery, Standby, VolumeStatus

CLUSTER = "slurmcluster/demo"
POOL = "nodeset/cpu"
REF = {"clusterRef": {"name": "demo"}}
TIME = "2026-01-01T00:00:00Z"
NAMES = [manifest["metadata"]["name"] for manifest in crd.manifests()]


@pytest.fixture(scope="module")
def server(unattended: Sandbox) -> Sandbox:
    """A sandbox that knows our kinds. Applied as the operator does it: server-side, refusing what isn't known."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": crd.manifests()})
    applied = unattended.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=text)
    assert applied.stderr == "", "the API server warns"
    unattended.kubectl("wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in NAMES))
    return unattended


def thing(kind: str, spec: Any = None, name: str = "demo") -> dict[str, Any]:
    manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": "default"}}
    return manifest if spec is None else {**manifest, "spec": spec}


def send(server: Sandbox, manifest: dict[str, Any]) -> Answer:
    """Try to create an object, as strictly as kubectl does, without keeping it."""
    path = f"/apis/{API_VERSION}/namespaces/default/{manifest['kind'].lower()}s?dryRun=All&fieldValidation=Strict"
    return server.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(manifest), check=False)


def stored(server: Sandbox, manifest: dict[str, Any]) -> dict[str, Any]:
    """What the API server would store."""
    answer = send(server, manifest)
    assert answer.code == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def refuse(server: Sandbox, manifest: dict[str, Any], words: str) -> None:
    answer = send(server, manifest)
    assert answer.code != 0, f"accepted: {answer.stdout}"
    assert words in answer.stderr


def test_no_name_violates_a_convention_of_the_api_server(server: Sandbox) -> None:
    for name in NAMES:
        conditions = {c["type"]: c["status"] for c in server.get("crd", name)["status"]["conditions"]}
        assert conditions["NamesAccepted"] == conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.fixture(scope="module")
def documented(server: Sandbox) -> Sandbox:
    """The same once it publishes the documentation, which is a moment after it takes objects."""

    def published() -> bool:
        return all(server.kubectl("explain", name, check=False).code == 0 for name in NAMES)

    until("the documentation of our kinds is published", published)
    return server


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("slurmcluster", "A Slurm cluster: its controller, REST API and login pods"),
        ("slurmcluster.spec", "An empty spec is a working cluster"),
        ("slurmcluster.spec.controller", "the daemon that manages the queue"),
        ("slc.spec.controller.storage", "The size to claim"),
        ("slc.spec.podTemplate", "applied as a strategic merge"),
        ("nodeset.spec.replicas", "Default: 1."),
        ("nset.spec.drain.onTimeout", "requeue"),
        ("nset.status.conditions", "The conditions of the pool"),
    ],
)
def test_explain_reads_like_documentation(documented: Sandbox, field: str, words: str) -> None:
    said = " ".join(documented.kubectl("explain", field).stdout.split())
    assert words in said
    assert "<no description>" not in said


@pytest.mark.parametrize("spec", [None, {}, {"controller": {}, "login": {"service": {}}}, {"clusterName": None}])
def test_an_empty_cluster_gets_the_defaults_of_the_struct(server: Sandbox, spec: Any) -> None:
    answer = stored(server, thing("SlurmCluster", spec))
    assert answer["spec"] == spelled_out(SlurmClusterSpec())
    cluster = convert(answer, SlurmCluster)
    assert cluster.spec == SlurmClusterSpec()
    assert cluster.metadata.name == "demo"


def test_an_empty_nodeset_gets_the_defaults_of_the_struct(server: Sandbox) -> None:
    answer = stored(server, thing("NodeSet", REF, name="gpu"))
    expected = NodeSetSpec(cluster_ref=ClusterRef(name="demo"))
    assert answer["spec"] == spelled_out(expected)
    assert convert(answer, NodeSet).spec == expected


def test_what_the_structs_write_is_stored_as_it_is(server: Sandbox) -> None:
    spec = {
        "clusterName": "physics_2",
        "controller": {
            "image": "registry.example:5000/slurm/slurmctld@sha256:00ff",
            "storage": {"size": "10Gi", "className": "fast.ssd", "accessMode": "ReadWriteMany", "onDelete": "delete"},
            "standby": 4,
            "leaseDuration": "2s",
            "keepJobs": False,
            "hold": True,
            "resources": {"requests": {"cpu": 1, "memory": "1.5Gi"}, "limits": {"cpu": "1500m", "memory": "2e9"}},
            "podTemplate": {
                "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "macvlan"}},
                "spec": {
                    "tolerations": [{"operator": "Exists"}],
                    "hostNetwork": None,
                    "containers": [{"name": "sssd"}],
                },
            },
        },
        "login": {"replicas": 0, "authorizedKeys": ["ssh-ed25519 AAAA me"], "authorizedKeysSecret": {"name": "keys"}},
        "users": {
            "ldap": {
                "uri": ["ldaps://ldap.example.com", "ldap://[::1]:3389"],
                "baseDN": "dc=example,dc=com",
                "userBaseDN": "OU=Staff,DC=example,DC=com",
                "groupBaseDN": "ou=groups,dc=example,dc=com",
                "bindSecret": {"name": "reader"},
                "caSecret": {"name": "authority"},
                "startTLS": False,
                "schema": "activeDirectory",
                "userFilter": r"(&(memberOf=cn=hpc,dc=x)(!(cn=a\2ab)))",
                "groupFilter": "(gidNumber=*)",
                "attributes": {"userName": "uid", "members": "uniqueMember"},
                "keyAttribute": "ipaSshPubKey",
                "shell": "/bin/bash",
                "interval": "24h",
                "pageSize": 500,
                "maxUsers": 200000,
            }
        },
        "nodeSets": {"namespaces": ["team-a"]},
        "config": {"slurm.conf": "# ClusterName=x\nPrologFlags=Alloc\n", "job_submit.lua": "return slurm.SUCCESS"},
    }
    answer = stored(server, thing("SlurmCluster", spec))
    cluster = convert(answer, SlurmCluster)
    assert cluster.spec == convert(spec, SlurmClusterSpec)
    assert spelled_out(cluster.spec) == answer["spec"]


BAD_LDAP: list[tuple[dict[str, Any], str]] = [
    ({"uri": ["http://ldap.example.com"]}, "write it as ldaps://ldap.example.com"),
    ({"uri": ["ldaps://ldap.example.com/dc=x"]}, "write it as ldaps://ldap.example.com"),
    ({"uri": []}, "should have at least 1 items"),
    ({"baseDN": "example.com"}, "write it as ou=people,dc=example,dc=com"),
    ({"caSecret": {"name": "a"}, "caConfigMap": {"name": "b"}}, "remove caSecret or caConfigMap"),
    ({"interval": "9s"}, "set interval to between 10s and 24h"),
    ({"interval": "24h1s"}, "set interval to between 10s and 24h"),
    ({"userFilter": "uid=ada"}, "write it in parentheses"),
    ({"keyAttribute": "ssh key"}, "use letters, digits and hyphens"),
    ({"shell": "bash"}, "write the full path of a program"),
    ({"schema": "nis"}, 'supported values: "activeDirectory", "rfc2307", "rfc2307bis"'),
]
BAD_CLUSTERS: list[tuple[Any, str]] = [
    ({"clusterName": "a;drop"}, "use at most 40 lower-case letters"),
    ({"clusterName": "../x"}, "use at most 40 lower-case letters"),
    ({"clusterName": "demo\n"}, "use at most 40 lower-case letters"),
    ({"clusterName": "a" * 65}, "may not be more than 40"),
    ({"clusterNme": "x"}, 'unknown field "spec.clusterNme"'),
    ({"podTemplate": {"tolerations": []}}, 'unknown field "spec.podTemplate.tolerations"'),
    ({"rest": {"replicas": 0}}, "greater than or equal to 1"),
    ({"login": {"replicas": -1}}, "greater than or equal to 0"),
    ({"login": {"authorizedKeys": ["a\nb"]}}, "write each line of authorized_keys as one item"),
    ({"login": {"authorizedKeys": ["a", "a"]}}, "Duplicate value"),
    ({"login": {"limits": {"memory": "500m"}}}, "use 64Mi or more"),
    ({"logins": [{"name": "keys"}]}, "choose another name"),
    ({"logins": [{"name": "keys-0"}]}, "choose another name"),
    ({"logins": [{"name": "a", "limits": {"memory": 0}}]}, "use 64Mi or more"),
    ({"mounts": [{"name": "a", "path": "/data", "claim": "a", "subPath": ".."}]}, "the folder has a .. in it"),
    ({"mounts": [{"name": "a", "path": "/data", "claim": "a", "subPath": "a/../b"}]}, "the folder has a .. in it"),
    ({"login": {"service": {"type": "ExternalName"}}}, 'supported values: "ClusterIP", "LoadBalancer", "NodePort"'),
    ({"controller": {"storage": {"size": "lots"}}}, "spec.controller.storage.size"),
    ({"controller": {"storage": {"size": -1}}}, "spec.controller.storage.size"),
    ({"controller": {"storage": {"onDelete": "burn"}}}, 'supported values: "delete", "retain"'),
    ({"controller": {"image": "a b"}}, "write it as registry.example/path/name:tag"),
    (
        {"controller": {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}},
        "set limits to at least what requests says",
    ),
    ({"controller": {"standby": 1}}, "set storage.accessMode to ReadWriteMany"),
    (
        {"controller": {"standby": 1, "storage": {"accessMode": "ReadWriteOncePod"}}},
        "a standby mounts the same volume from another Kubernetes node",
    ),
    ({"controller": {"standby": -1}}, "greater than or equal to 0"),
    ({"controller": {"standby": 5, "storage": {"accessMode": "ReadWriteMany"}}}, "less than or equal to 4"),
    ({"controller": {"leaseDuration": "1s"}}, "set leaseDuration to between 2s and 5m"),
    ({"controller": {"leaseDuration": "0h"}}, "set leaseDuration to between 2s and 5m"),
    ({"controller": {"leaseDuration": "5m1s"}}, "set leaseDuration to between 2s and 5m"),
    ({"controller": {"leaseDuration": "999999h999999m999999s"}}, "set leaseDuration to between 2s and 5m"),
    ({"controller": {"leaseDuration": "500ms"}}, "write hours, minutes and seconds in this order"),
    ({"controller": {"keepJobs": "maybe"}}, "must be of type boolean"),
    ({"nodeSets": {"namespaces": ["Team"]}}, "use lower-case letters, digits and hyphens"),
    ({"config": {"../passwd": ""}}, "a key of config isn't a file name"),
    ({"config": {"slurm.key": "x"}}, "remove the file, since Seltzer generates the keys"),
    ({"config": {"slurm.conf": "A=1\n include /etc/passwd"}}, "write its lines into slurm.conf instead"),
    ({"config": {"slurm.conf": "A=1\nclustername=x"}}, "set spec.clusterName when you create a cluster"),
    ({"config": {"slurm.conf": "A=1 StateSaveLocation += /tmp"}}, "set spec.controller.storage"),
    ({"config": {"slurm.conf": "\tSlurmctldHost=evil"}}, "always leads to the active slurmctld: remove it"),
    ({"config": {"slurm.conf": 1}}, "must be of type string"),
    *(
        ({"users": {"ldap": {"uri": ["ldaps://ldap.example.com"], "baseDN": "dc=example,dc=com", **fields}}}, words)
        for fields, words in BAD_LDAP
    ),
    ({"topology": {"labels": []}}, "spec.topology.labels"),
    ({"topology": {"labels": ["-rack"]}}, "not the key of a label"),
]


@pytest.mark.parametrize(("spec", "words"), BAD_CLUSTERS)
def test_a_bad_cluster_is_refused_with_what_to_do(server: Sandbox, spec: Any, words: str) -> None:
    refuse(server, thing("SlurmCluster", spec), words)


BAD_NODESETS: list[tuple[Any, str]] = [
    ({"clusterRef": None}, "spec.clusterRef: Required value"),
    ({"clusterRef": {}}, "spec.clusterRef.name: Required value"),
    ({"clusterRef": {"name": "A_b"}}, "no Kubernetes object can have this name"),
    ({"replicas": -1}, "greater than or equal to 0"),
    ({"replicas": 65537}, "less than or equal to 65536"),
    ({"weight": 0}, "greater than or equal to 1"),
    ({"features": ["a&b"]}, "not a feature that jobs can ask for"),
    ({"features": ["a\nNodes=ALL"]}, "not a feature that jobs can ask for"),
    ({"partition": {"name": "Default"}}, "choose another name"),
    ({"partition": {"name": "a b"}}, "not the name of a partition"),
    ({"partition": {"options": 'A="x"'}}, "write them like MaxTime=1-00:00:00 Default=YES"),
    ({"partition": {"options": "A=x\nInclude=y"}}, "write them like MaxTime=1-00:00:00 Default=YES"),
    ({"partition": {"options": "Default=YES nodes=ALL"}}, "remove them from options"),
    ({"partition": {"enabled": False, "options": "Default=YES"}}, "remove name and options, or set enabled to true"),
    ({"drain": {"onTimeout": "kill"}}, "set drain.timeout, such as 1h"),
    ({"drain": {"timeout": "soon"}}, "write hours, minutes and seconds in this order"),
    ({"drain": {"timeout": ""}}, "at least 2 chars"),
    ({"drain": {"onTimeout": "explode", "timeout": "1h"}}, 'supported values: "kill", "requeue", "wait"'),
    ({"update": {"maxUnavailable": 0}}, "set it to at least 1, or set paused to true"),
    ({"update": {"maxUnavailable": "0%"}}, "set it to at least 1, or set paused to true"),
    ({"update": {"maxUnavailable": "101%"}}, "spec.update.maxUnavailable"),
    ({"update": {"maxUnavailable": "a few"}}, "spec.update.maxUnavailable"),
    ({"placement": "perNode", "replicas": 1}, "so it can't be scaled: remove replicas"),
    ({"placement": "everywhere"}, 'supported values: "onePerNode", "perNode", "spread"'),
    ({"featuresFromLabels": ["a b"]}, "not the key of a label: write it like topology.kubernetes.io/zone"),
]


@pytest.mark.parametrize(("spec", "words"), BAD_NODESETS)
def test_a_bad_nodeset_is_refused_with_what_to_do(server: Sandbox, spec: Any, words: str) -> None:
    refuse(server, thing("NodeSet", {**REF, **spec}, name="gpu"), words)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("SlurmCluster", "a.b", "choose one of at most 40 lower-case letters"),
        ("SlurmCluster", "0a", "choose one of at most 40 lower-case letters"),
        ("SlurmCluster", "a" * 41, "choose one of at most 40 lower-case letters"),
        ("NodeSet", "a.b", "choose one of at most 40 lower-case letters"),
        ("NodeSet", "default", "choose another name"),
        ("NodeSet", "all", "choose another name"),
    ],
)
def test_a_name_that_slurm_or_dns_cannot_have_is_refused(server: Sandbox, kind: str, name: str, words: str) -> None:
    refuse(server, thing(kind, REF if kind == "NodeSet" else {}, name=name), words)


@pytest.fixture(scope="module")
def kept(server: Sandbox) -> Iterator[Sandbox]:
    """The same with a cluster and a pool in it."""
    server.apply(thing("SlurmCluster", {}), thing("NodeSet", REF, name="cpu"))
    yield server
    server.delete("slurmclusters,nodesets", "--all")


def change(server: Sandbox, which: str, spec: Any) -> Answer:
    """Try to change an object."""
    words = ("patch", which, "--dry-run=server", "--type=merge", "-p", json.dumps({"spec": spec}))
    return server.kubectl(*words, check=False)


@pytest.mark.parametrize(
    ("which", "spec", "words"),
    [
        (CLUSTER, {"clusterName": "other"}, "set clusterName to what it was"),
        (CLUSTER, {"controller": {"standby": 1}}, "set storage.accessMode to ReadWriteMany"),
        (CLUSTER, {"controller": {"storage": {"size": "4095Mi"}}}, "a volume can't shrink"),
        (CLUSTER, {"controller": {"storage": {"className": "other"}}}, "set className to what it was"),
        (CLUSTER, {"controller": {"storage": {"accessMode": "ReadWriteMany"}}}, "set accessMode to what it was"),
        (POOL, {"clusterRef": {"name": "other"}}, "nodes can't move to another cluster"),
        (POOL, {"clusterRef": {"namespace": "other"}}, "nodes can't move to another cluster"),
        (POOL, {"placement": "perNode"}, "set placement to what it was, or create a new NodeSet"),
    ],
)
def test_what_cannot_change_does_not(kept: Sandbox, which: str, spec: Any, words: str) -> None:
    answer = change(kept, which, spec)
    assert answer.code != 0
    assert words in answer.stderr


@pytest.mark.parametrize(
    ("which", "spec"),
    [
        (CLUSTER, {"clusterName": "demo"}),  # says only what is so already
        (CLUSTER, {"controller": {"storage": {"size": 5 * 2**30, "onDelete": "delete"}}}),
        (CLUSTER, {"controller": {"hold": True, "keepJobs": False, "leaseDuration": "1m30s"}}),
        (POOL, {"replicas": 3, "update": {"maxUnavailable": 2}, "drain": {"timeout": "1h30m", "onTimeout": "kill"}}),
        (POOL, {"placement": "onePerNode", "featuresFromLabels": ["node.kubernetes.io/instance-type"]}),
        (CLUSTER, {"topology": {"labels": ["topology.kubernetes.io/zone", "rack"]}}),
        (POOL, {"partition": {"name": "shared", "options": "Default=YES MaxTime=1-00:00:00 AllowGroups=a,b"}}),
    ],
)
def test_what_may_change_does(kept: Sandbox, which: str, spec: Any) -> None:
    answer = change(kept, which, spec)
    assert answer.code == 0, answer.stderr


def report(server: Sandbox, which: str, status: Any) -> None:
    server.kubectl("patch", which, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def condition(kind: str, status: Literal["True", "False"], message: str = "") -> Condition:
    return Condition(type=kind, status=status, reason="Because", message=message, last_transition_time=TIME)


def table(server: Sandbox, kind: str) -> list[list[str]]:
    """The head and the row that kubectl prints, without the age."""
    head, row = (line.split() for line in server.kubectl("get", kind).stdout.splitlines())
    assert head[-1] == "AGE"
    return [head[:-1], row[:-1]]


def test_the_status_of_a_cluster_is_shown_in_columns(kept: Sandbox) -> None:
    status = SlurmClusterStatus(
        conditions=(condition("Ready", "False", "slurmctld starts"),),
        slurm_version="26.05.4",
        nodes=NodeCounts(total=12, down=3),
        jobs=JobCounts(running=44),
        controller=ControllerStatus(
            pod="demo-slurmctld-x", node="n1", epoch=2, standbys=(Standby(pod="y", node="n2"),)
        ),
        volume=VolumeStatus(free=1, size=2),
        crash=Crash(time=TIME, how="was ended by SIGSEGV", lines="a\nb"),
        recovered=Recovered(
            time=TIME,
            epoch=2,
            groups=(RecoveredJobs(outcome="held", why="so", jobs="7-9", count=3, users="1000"),),
            more=1,
            earlier=(Recovery(time=TIME, groups=(RecoveredJobs(outcome="ran", jobs="7", count=1),)),),
        ),
    )
    report(kept, CLUSTER, to_builtins(status))
    assert convert(kept.get(*CLUSTER.split("/")), SlurmCluster).status == status
    assert table(kept, "slurmclusters") == [
        ["NAME", "READY", "REASON", "SLURM", "NODES", "DOWN", "RUNNING", "PENDING"],
        ["demo", "False", "Because", "26.05.4", "12", "3", "44", "0"],
    ]
    wide = kept.kubectl("get", "slc", "-o", "wide").stdout
    assert "slurmctld starts" in wide and "n1" in wide.split()


def test_the_status_of_a_pool_is_shown_in_columns(kept: Sandbox) -> None:
    status = NodeSetStatus(
        conditions=(condition("Ready", "True"),),
        replicas=2,
        ready_replicas=1,
        nodes=NodeCounts(total=13, idle=6, draining=7),
    )
    report(kept, POOL, to_builtins(status))
    assert convert(kept.get(*POOL.split("/")), NodeSet).status == status
    assert table(kept, "nodesets") == [
        ["NAME", "CLUSTER", "DESIRED", "READY", "IDLE", "DRAINING", "DOWN", "REASON"],
        ["cpu", "demo", "1", "1", "6", "7", "0", "Because"],
    ]


def test_both_kinds_are_in_one_category(kept: Sandbox) -> None:
    assert kept.kubectl("get", "seltzer", "-o", "name").stdout.split() == [
        "nodeset.seltzer.dev/cpu",
        "slurmcluster.seltzer.dev/demo",
    ]


def test_a_nodeset_scales_like_a_deployment(kept: Sandbox) -> None:
    report(kept, POOL, {"replicas": 1, "selector": "seltzer.dev/nodeset=cpu"})
    kept.kubectl("scale", POOL, "--replicas=7")
    raw = kept.kubectl("get", "--raw", f"/apis/{API_VERSION}/namespaces/default/nodesets/cpu/scale").stdout
    scale = json.loads(raw)
    assert scale["spec"] == {"replicas": 7}
    assert scale["status"] == {"replicas": 1, "selector": "seltzer.dev/nodeset=cpu"}
    refused = kept.kubectl("scale", POOL, "--replicas=70000", check=False)
    assert "less than or equal to 65536" in refused.stderr
    kept.kubectl("scale", POOL, "--replicas=1")


def test_the_nodesets_of_a_cluster_can_be_selected(kept: Sandbox) -> None:
    def found(cluster: str) -> int:
        return len(kept.get("nodesets", "--field-selector", f"spec.clusterRef.name={cluster}")["items"])

    assert (found("demo"), found("other")) == (1, 0)


def test_two_writers_of_conditions_do_not_undo_each_other(kept: Sandbox) -> None:
    for writer in ("One", "Two"):
        manifest = {**thing("SlurmCluster"), "status": {"conditions": [to_builtins(condition(writer, "True"))]}}
        words = ("apply", "--server-side", "--subresource=status", f"--field-manager={writer}", "-f", "-")
        kept.kubectl(*words, stdin=json.dumps(manifest))
    cluster = convert(kept.get(*CLUSTER.split("/")), SlurmCluster)
    assert {"One", "Two"} <= {known.type for known in cluster.status.conditions}
