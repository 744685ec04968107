"""What the clusters of a sandbox look like when a test has failed.

A fault that comes once in a hundred runs is found by what it left behind, or not at all.
"""

from __future__ import annotations

import subprocess

from tests.harness import Sandbox

from seltzer.errors import SeltzerError

_DEADLINE = 60.0
_MOST_LINES = 160

# Each question has a moment of its own, since what the test has broken may not answer.
_SCRIPT = r"""
ask() { timeout 10 "$@" 2>&1 | tail -n 25; }
kubectl get nodes
kubectl get slurmclusters -A --no-headers -o custom-columns=N:.metadata.namespace,C:.metadata.name |
while read -r namespace name; do
    kube() { ask kubectl --namespace "$namespace" "$@"; }
    login() { kube exec "deployment/$name-login" --container=login -- "$@"; }
    echo "== $namespace/$name"
    kube get pods,nodesets -o wide
    login sinfo --all -N -o '%N %T %E'
    login squeue --all -o '%i %P %T %r %N %S'
    echo "-- events"
    kube get events --sort-by=.lastTimestamp
    echo "-- slurmctld"
    kube logs "deployment/$name-slurmctld" --tail=25
done
echo "== operator"
ask kubectl --namespace seltzer-system logs --selector=app.kubernetes.io/part-of=seltzer --tail=20 --prefix
"""


def look(name: str) -> str:
    """The last lines of everything; never an error of its own."""
    try:
        seen = Sandbox(name).shell(_SCRIPT, deadline=_DEADLINE)
    except (AssertionError, OSError, SeltzerError, subprocess.SubprocessError) as error:
        return f"nothing is to be seen: {error}"
    return "\n".join((seen.stdout + seen.stderr).splitlines()[-_MOST_LINES:])
