"""`seltzer version`: the versions of all parts."""

from __future__ import annotations

import asyncio

from msgspec import UNSET
from rich.text import Text

from seltzer import __version__
from seltzer.api import crd
from seltzer.api.common import VERSION
from seltzer.build.names import OPERATOR
from seltzer.cli import kube, show
from seltzer.cli.options import SYSTEM_NAMESPACE, Context, Output, OutputFlag, SystemNamespace
from seltzer.errors import SeltzerError
from seltzer.kube import kinds as resources
from seltzer.kube.client import Client
from seltzer.kube.crds import CRDS
from seltzer.kube.errors import Forbidden, KubeError, NotFound
from seltzer.view import colours


def version(
    *, namespace: SystemNamespace = SYSTEM_NAMESPACE, context: Context = None, output: OutputFlag = Output.text
) -> None:
    """Print the versions of this command, of the operator, of the API and of Slurm in each cluster."""
    found: dict[str, object] = {"client": __version__}
    try:
        place = kube.locate(namespace, context)
        found |= kube.talk(place, lambda client: _server(client, place.namespace))
    except (SeltzerError, KubeError) as error:
        found["error"] = str(error)
    if output is not Output.text:
        show.data(found, output)
        return
    rows = [(Text(name, colours.TITLE), Text(_said(value))) for name, value in found.items()]
    for line in show.aligned(rows):
        show.console().print(line)


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or "none"
    return str(value)


async def _server(client: Client, namespace: str) -> dict[str, object]:
    operator, kinds, slurm = await asyncio.gather(_operator(client, namespace), _kinds(client), _slurm(client))
    return {"operator": operator, "api": kinds, "slurm": slurm}


async def _operator(client: Client, namespace: str) -> str:
    try:
        found = await client.get(kube.DEPLOYMENTS, OPERATOR, namespace)
    except NotFound:
        return f"not installed in namespace {namespace}; run 'seltzer install'"
    except Forbidden:
        return "unknown: you may not see it"
    images = ", ".join(container.image for container in found.spec.template.spec.containers)
    return f"{images} ({found.status.available_replicas} of {found.spec.replicas} available)"


async def _kinds(client: Client) -> str:
    names = [str(manifest["metadata"]["name"]) for manifest in crd.manifests()]
    try:
        known = {each.metadata.name for each in (await client.list_all(CRDS)).items}
    except Forbidden:
        return "unknown: you may not see CRDs"
    missing = [name for name in names if name not in known]
    if missing:
        return f"{', '.join(missing)} not installed; run 'seltzer install'"
    return ", ".join(f"{name.split('.')[0]} {VERSION}" for name in names)


async def _slurm(client: Client) -> dict[str, str]:
    """The version of Slurm in each cluster that we may see."""
    try:
        clusters = (await client.list_all(resources.CLUSTERS)).items
    except (NotFound, Forbidden):
        return {}
    return {
        f"{each.metadata.namespace}/{each.metadata.name}": (
            "unknown" if each.status.slurm_version is UNSET else each.status.slurm_version
        )
        for each in clusters
    }
