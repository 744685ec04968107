"""`seltzer install`, `upgrade` and `uninstall`: Seltzer itself, on a Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from cyclopts import Parameter

from seltzer.api import crd
from seltzer.api.core import Pod
from seltzer.build import operator
from seltzer.build.components import slurmctld
from seltzer.build.components.table import COMPONENTS, released
from seltzer.build.images import REGISTRY, TAG, Images
from seltzer.build.names import OPERATOR
from seltzer.cli import kube, show
from seltzer.cli.kube import Place
from seltzer.cli.objects import Change, Objects, name_of
from seltzer.cli.options import SYSTEM_NAMESPACE, Context, SystemNamespace, Timeout
from seltzer.errors import SeltzerError
from seltzer.kube import crds
from seltzer.kube import kinds as resources
from seltzer.kube.client import MANAGER, Client
from seltzer.kube.errors import Forbidden, NotFound
from seltzer.kube.resource import Resource
from seltzer.progress import Progress

GONE_DEADLINE = 120.0

Print = Annotated[bool, Parameter(name="--print", negative="", help="Print the manifests as YAML and change nothing.")]
Image = Annotated[str | None, Parameter(help="The operator's image, where it is not REGISTRY/operator:TAG.")]
Registry = Annotated[
    str | None,
    Parameter(help=f"Where all images are, such as registry.example/seltzer. Default: as installed, or {REGISTRY}."),
]
Tag = Annotated[str | None, Parameter(help=f"The tag of all images. Default: as installed, or {TAG}.")]


def install(
    *,
    only_print: Print = False,
    namespace: SystemNamespace = SYSTEM_NAMESPACE,
    registry: Registry = None,
    tag: Tag = None,
    image: Image = None,
    timeout: Timeout = 180.0,
    context: Context = None,
) -> None:
    """Install Seltzer on Kubernetes: its kinds, its rights and its operator. Run it again as often as you like.

    Where Seltzer is installed already, this works as 'seltzer upgrade': the installed images stay unless you name
    others with --registry, --tag or --image. --print doesn't look at what is installed.
    """
    if only_print:
        release = _release(None, registry, tag, image)
        print(show.manifests([*crd.manifests(), *_operator(namespace, release)]), end="")
        return
    place = kube.locate(namespace, context)
    installed = kube.talk(place, lambda client: _installed(client, namespace))
    _roll_out(place, _release(installed, registry, tag, image), timeout)
    print("Seltzer is installed; 'seltzer create NAME' makes a Slurm cluster")


def upgrade(
    *,
    only_print: Print = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Say what would change, and change nothing.")] = False,
    namespace: SystemNamespace = SYSTEM_NAMESPACE,
    registry: Registry = None,
    tag: Tag = None,
    image: Image = None,
    timeout: Timeout = 180.0,
    context: Context = None,
) -> None:
    """Bring the installed Seltzer to the version of this command, and say what changes. Clusters keep running.

    The installed images stay unless you name others: --tag alone keeps the registry, --registry alone keeps the tag. An
    operator's image that was installed with --image stays only if neither is given.
    """
    place = kube.locate(namespace, context)
    installed = kube.talk(place, lambda client: _installed(client, namespace))
    if installed is None:
        raise SeltzerError(
            f"there is no Seltzer in namespace {namespace!r}; run 'seltzer install', or say with -n where it is"
        )
    release = _release(installed, registry, tag, image)
    if only_print:
        print(show.manifests([*crd.manifests(), *_operator(namespace, release)]), end="")
        return
    changes = kube.talk(place, lambda client: _changes(client, namespace, release))
    for change in changes:
        if change.is_new or change.fields:
            print(change)
    if not any(change.is_new or change.fields for change in changes):
        print("nothing changes: this version is installed already")
    if not dry_run:
        _roll_out(place, release, timeout)


def uninstall(
    *,
    yes: Annotated[bool, Parameter(negative="", help="Don't ask.")] = False,
    with_crds: Annotated[
        bool, Parameter(name="--crds", negative="", help="Remove the kinds SlurmCluster and NodeSet too.")
    ] = False,
    namespace: SystemNamespace = SYSTEM_NAMESPACE,
    context: Context = None,
) -> None:
    """Remove the operator. Clusters keep running, but nothing reconciles them any more.

    --crds removes the kinds too. That would delete every cluster, so it is refused while there are any.
    """
    place = kube.locate(namespace, context)
    clusters = kube.talk(place, _clusters)
    if clusters and with_crds:
        raise SeltzerError(
            f"removing the kinds would delete {', '.join(clusters)}; delete them first, while the operator is there to "
            "drain them: 'kubectl delete slurmclusters,nodesets --all -A'"
        )
    if clusters:
        print(f"these go on running, with nobody to look after them: {', '.join(clusters)}", file=sys.stderr)
    if not yes and not _agreed(f"Remove the operator from namespace {namespace}{' and all CRDs' * with_crds}?"):
        raise SeltzerError("nothing was removed; answer y, or use --yes")
    manifests = [*(crd.manifests() if with_crds else []), *_operator(namespace, _release(None, None, None, None))]
    removed = kube.talk(place, lambda client: _remove(client, manifests, clusters, namespace))
    print(f"removed: {', '.join(removed)}" if removed else "there was nothing to remove")


@dataclass(frozen=True)
class Release:
    """The images of one version: the operator's, and those of the pods that it creates."""

    operator: str
    images: Images


def _release(installed: Release | None, registry: str | None, tag: str | None, image: str | None) -> Release:
    """The images to run: the installed ones, or those of the flags."""
    if installed is None:
        found = _named(registry or REGISTRY, tag or TAG)
    elif registry or tag:
        registry_now, tag_now = _registry_and_tag(installed.images.of(slurmctld.NAME))
        found = _named(registry or registry_now, tag or tag_now)
    else:
        found = installed
    return replace(found, operator=image) if image else found


def _named(registry: str, tag: str) -> Release:
    """All images of one registry and one tag."""
    if not tag:
        raise SeltzerError("the installed images are named by their digests; say with --tag which ones to run")
    registry = registry.rstrip("/")
    return Release(f"{registry}/operator:{tag}", released(registry, tag))


def _registry_and_tag(image: str) -> tuple[str, str]:
    """The registry and the tag of an image; no tag if it is named by its digest."""
    registry, _, name = image.rpartition("/")
    return registry, "" if "@" in name else name.partition(":")[2]


async def _installed(client: Client, namespace: str) -> Release | None:
    """The images that the installed operator runs with; None if there is no operator."""
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": OPERATOR, "namespace": namespace}}
    found = await Objects(client).get(head)
    if found is None:
        return None
    container = next(each for each in found["spec"]["template"]["spec"]["containers"] if each["name"] == "operator")
    images = Images.from_env({each["name"]: each.get("value", "") for each in container.get("env", ())})
    if not {component.name for component in COMPONENTS} <= images.named.keys():
        # An older operator doesn't name all images of this version: the others come from its registry, with its tag.
        others = _named(*_registry_and_tag(images.of(slurmctld.NAME))).images
        images = replace(images, named={**others.named, **images.named})
    return Release(container["image"], images)


def _operator(namespace: str, release: Release) -> list[dict[str, Any]]:
    return operator.manifests(namespace, release.operator, release.images)


def _roll_out(place: Place, release: Release, timeout: float) -> None:
    namespace = place.namespace

    async def roll_out(client: Client, progress: Progress) -> None:
        objects = Objects(client)
        with progress.step("teach Kubernetes SlurmCluster and NodeSet"):
            await crds.install(client, crd.manifests())
        with progress.step(f"apply the operator to namespace {namespace}"):
            for manifest in _operator(namespace, release):
                await objects.apply(manifest)
        with progress.step("wait until the operator is available"):
            what = "the operator isn't available"
            await kube.until(lambda: _unavailable(client, namespace), timeout, progress.note, what)

    with Progress() as progress:
        kube.talk(place, lambda client: roll_out(client, progress))


async def _changes(client: Client, namespace: str, release: Release) -> list[Change]:
    objects = Objects(client)
    # With the field manager of the real apply: an apply removes only fields of its own manager.
    kinds = [await objects.apply(each, dry_run=True, manager=MANAGER) for each in crd.manifests()]
    return kinds + [await objects.apply(each, dry_run=True) for each in _operator(namespace, release)]


async def _unavailable(client: Client, namespace: str) -> str:
    """Why the operator isn't fully available; empty if it is."""
    found = await client.get(kube.DEPLOYMENTS, OPERATOR, namespace)
    status, wanted = found.status, found.spec.replicas
    if status.observed_generation < found.metadata.generation:
        return "Kubernetes hasn't begun yet"
    if status.updated_replicas == status.available_replicas == wanted:
        return ""
    labels = ",".join(f"{key}={value}" for key, value in found.spec.selector.match_labels.items())
    pods = (await client.list_all(resources.PODS, namespace, params={"labelSelector": labels})).items
    return "; ".join([f"{status.available_replicas} of {wanted} available", *reasons(pods)])


def reasons(pods: Iterable[Pod]) -> list[str]:
    """The reasons why pods don't run, without duplicates."""
    found: dict[str, None] = {}
    for pod in pods:
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            waiting, ended = status.state.waiting, status.last_state.terminated or status.state.terminated
            if ended:
                found[f"it ends with exit code {ended.exit_code} ({ended.reason}); see 'seltzer logs operator'"] = None
            elif waiting and waiting.reason != "ContainerCreating":
                found[f"{waiting.reason}: {waiting.message}".removesuffix(": ")] = None
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                found[f"{condition.reason}: {condition.message}"] = None
    return list(found)


async def _clusters(client: Client) -> list[str]:
    """All SlurmClusters and NodeSets, in all namespaces."""
    names = []
    kinds: tuple[Resource[Any], ...] = (resources.CLUSTERS, resources.NODESETS)
    for resource in kinds:
        try:
            found = await client.list_all(resource)
        except NotFound:
            continue
        except Forbidden as error:
            raise SeltzerError(f"you may not see all clusters, so you can't remove what keeps them: {error}") from None
        names += [f"{resource.kind} {each.metadata.namespace}/{each.metadata.name}" for each in found.items]
    return names


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


async def _remove(
    client: Client, manifests: Sequence[dict[str, Any]], clusters: Sequence[str], namespace: str
) -> list[str]:
    """Removes them in reverse order. A namespace takes its content with it: only our own is removed, and only if it has
    no clusters."""
    objects, removed = Objects(client), list[dict[str, Any]]()
    stays = namespace != SYSTEM_NAMESPACE or any(f" {namespace}/" in name for name in clusters)
    with Progress() as progress, progress.step("remove Seltzer"):
        for manifest in reversed(manifests):
            if manifest["kind"] == "Namespace" and stays:
                continue
            if await objects.delete(manifest):
                removed.append(manifest)

        async def remaining() -> str:
            return ", ".join([name_of(each) for each in removed if await objects.get(each)])

        await kube.until(remaining, GONE_DEADLINE, lambda _: None, "not everything is gone")
    return [name_of(each) for each in removed]
