"""`seltzer create`: a first cluster, or its manifest as a starting point."""

from __future__ import annotations

import re
from typing import Annotated, Any

import yaml
from cyclopts import Parameter

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import kube, scale
from seltzer.cli.kube import Place
from seltzer.cli.options import Context, Namespace, Timeout, Wait
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import AlreadyExists, NotFound
from seltzer.kube.resource import Resource
from seltzer.progress import Progress
from seltzer.view.tree import condition

# The same rule as in the CRDs: --print works without an API server.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_TAKEN = ("all", "default")

STARTER = """\
# A Slurm cluster: slurmctld, slurmrestd and a login pod. 'kubectl explain slurmcluster.spec' tells of every field.
apiVersion: seltzer.dev/v1alpha1
kind: SlurmCluster
metadata:
  name: {name}
spec: {{}}  # is a working cluster; to say more, write lines such as these in place of the braces
#  login:
#    authorizedKeys: ["ssh-ed25519 AAAA... me@example"]  # who may log in with ssh
#  users:  # without any there is one, called user; its keys are in login.authorizedKeys
#    inline:
#      users:
#        - {{name: alice, uid: 2001, groups: [team], authorizedKeys: ["ssh-ed25519 AAAA... alice@example"]}}
#      groups:
#        - {{name: team, gid: 3001}}
#  home: {{size: 100Gi}}  # one /home for the login pod and all nodes; needs a storage class for ReadWriteMany volumes
#  config:
#    slurm.conf: |  # on top of Seltzer's; other files such as gres.conf too
#      SchedulerParameters=bf_continue
---
# Its nodes, each a pod. A cluster has any number of NodeSets; each is a partition unless it says otherwise.
apiVersion: seltzer.dev/v1alpha1
kind: NodeSet
metadata:
  name: {nodeset}
spec:
  clusterRef:
    name: {name}
  replicas: {nodes}
#  resources:  # without limits, each node has a whole Kubernetes node to itself
#    limits: {{cpu: "4", memory: 8Gi}}  # what each node has, for Kubernetes and for Slurm alike
#  features: [fast]
#  partition:
#    options: Default=YES MaxTime=1-00:00:00
"""


def create(
    name: str,
    /,
    *,
    nodes: Annotated[int, Parameter(help="How many nodes.")] = 2,
    nodeset: Annotated[str, Parameter(help="What to call the NodeSet; its nodes are NODESET-0, NODESET-1 ...")] = "cpu",
    only_print: Annotated[
        bool, Parameter(name="--print", negative="", help="Print the manifest to change and apply it yourself.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = 300.0,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Make a Slurm cluster with one NodeSet. Existing objects stay as they are.

    Parameters
    ----------
    name
        What to call the cluster.
    """
    text = starter(name, nodes, nodeset)
    if only_print:
        print(text, end="")
        return
    place = kube.locate(namespace, context)

    async def make(client: Client) -> None:
        cluster, pool = list(yaml.safe_load_all(text))
        print(await _create(client, kinds.CLUSTERS, cluster, place))
        print(await _create(client, kinds.NODESETS, pool, place), flush=True)
        made = await client.get(kinds.NODESETS, nodeset, place.namespace)
        if made.spec.cluster_ref.name != name:
            raise SeltzerError(
                f"NodeSet {nodeset!r} belongs to {made.spec.cluster_ref.name!r}; choose another with --nodeset"
            )
        if wait:
            await _wait(client, place, name, nodeset, timeout)

    kube.talk(place, make)
    print(_next(name, nodeset, nodes, "" if namespace is None else f"-n {namespace} ", wait))


def starter(name: str, nodes: int, nodeset: str) -> str:
    """The manifest. Raises SeltzerError for names and numbers that the API server would refuse."""
    for what, word in (("a cluster", name), ("a NodeSet", nodeset)):
        if not _NAME.fullmatch(word):
            raise SeltzerError(
                f"{word!r} can't be {what}'s name: use at most 40 lower-case letters, digits and hyphens, "
                "a letter first and no hyphen last"
            )
    if nodeset in _TAKEN:
        raise SeltzerError(f"{nodeset!r} means something else in slurm.conf; choose another with --nodeset")
    if not 0 <= nodes <= scale.MOST:
        raise SeltzerError(f"a NodeSet has between 0 and {scale.MOST} nodes, not {nodes}")
    return STARTER.format(name=name, nodeset=nodeset, nodes=nodes)


async def _create(client: Client, resource: Resource[Any], manifest: dict[str, Any], place: Place) -> str:
    name = f"{resource.kind} {manifest['metadata']['name']}"
    try:
        await client.create(resource, manifest, place.namespace)
    except AlreadyExists:
        return f"{name} is already there and stays as it is"
    except NotFound as error:
        if "namespaces" in str(error):
            raise SeltzerError(
                f"there is no namespace {place.namespace!r}; make it with 'kubectl create namespace {place.namespace}'"
            ) from None
        raise SeltzerError("Kubernetes doesn't know SlurmClusters; run 'seltzer install' first") from None
    return f"{name} created"


async def _wait(client: Client, place: Place, name: str, nodeset: str, timeout: float) -> None:
    async def look() -> str:
        cluster = await client.get(kinds.CLUSTERS, name, place.namespace)
        pool = await client.get(kinds.NODESETS, nodeset, place.namespace)
        return unready(cluster) or scale.lacks(pool) or unready(pool)

    with Progress() as progress, progress.step(f"wait until {name} is ready"):
        await kube.until(look, timeout, progress.note, f"{name} isn't ready")


def unready(item: SlurmCluster | NodeSet) -> str:
    """Why it isn't ready; empty when it is."""
    ready = condition(item, "Ready")
    if ready is None:
        return "the operator has said nothing yet; see 'seltzer version' if it stays so"
    return "" if ready.status == "True" else f"{ready.reason}: {ready.message}"


def _next(name: str, nodeset: str, nodes: int, where: str, waited: bool) -> str:
    first = [] if waited else [f"  seltzer status {where}{name}", "      watch it come up"]
    return "\n".join(
        [
            "try next:",
            *first,
            f"  seltzer srun {where}{name} --nodes {max(1, min(nodes, 2))} hostname",
            "      run a job",
            f"  seltzer shell {where}{name}",
            "      work on the login pod",
            f"  seltzer scale {where}{nodeset} {nodes + 2}",
            "      give it more nodes",
        ]
    )
