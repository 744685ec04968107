"""`seltzer operator`: what the operator's pods run."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace

import uvloop

from seltzer.build.images import Images
from seltzer.kube import config
from seltzer.serve import cluster_domain, logs
from seltzer.serve.main import Settings, run
from seltzer.wire import environment


def operator(
    *,
    namespace: str | None = None,
    context: str | None = None,
    port: int = 8080,
    outside: bool = False,
    log_level: str = "info",
) -> None:
    """Run the operator, as its pods do; 'seltzer install' sets them up.

    Parameters
    ----------
    namespace
        The namespace of the Lease; by default, the operator's own.
    context
        The context of the kubeconfig, outside of Kubernetes.
    port
        The port of /healthz, /readyz and /metrics.
    outside
        Reach Slurm through the API server, for an operator on your own machine during development.
    log_level
        debug, info, warning or error.
    """
    logs.set_up(log_level)
    where = config.load(context)
    settings = Settings(
        config=where,
        namespace=namespace or os.environ.get(environment.NAMESPACE) or where.namespace,
        identity=os.environ.get(environment.IDENTITY) or f"{socket.gethostname()}-{os.getpid()}",
        images=replace(Images.from_env(os.environ), cluster_domain=cluster_domain.find(os.environ)),
        port=port,
        outside=outside,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(settings))
