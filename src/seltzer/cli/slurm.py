"""`seltzer srun`, `sbatch` … and `seltzer shell`: Slurm's own commands, run on a login pod.

All words after the cluster's name are the command's. `hand_over` puts a `--` in front of them before our parser reads
them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn
from uuid import uuid4

from cyclopts import CycloptsError, Parameter

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build.components import login as logins
from seltzer.cli import kube, kubectl
from seltzer.cli.options import Context, LoginSet, Namespace, User
from seltzer.errors import SeltzerError
from seltzer.view.facts import LOGIN_USER
from seltzer.view.text import suggestion

Cluster = Annotated[str, Parameter(help="The cluster.")]
Words = Annotated[str, Parameter(name="WORDS", help="The command's own words.", allow_leading_hyphen=True)]

# These change nothing, so any user may run them.
_READING = ("squeue", "sinfo")
_OURS = ("--namespace", "-n", "--context", "--user", "--login", "--print")
_OURS_BARE = ("--print",)

# $0 is the user. setpriv, unlike su, stays in the terminal's session: Ctrl-C and job control work.
# A home directory that must not be used ends it; the script says why.
_BECOME = f"""\
id "$0" >/dev/null || exit
test ! -e {logins.MAKE_HOME} || sh {logins.MAKE_HOME} "$0" >&2 || exit
exec setpriv --reuid="$0" --regid="$(id -g "$0")" --init-groups --reset-env -- \
    sh -c 'cd 2>/dev/null || cd /; exec "$@"' sh "$@"
"""
# $1 is the script's path on the login pod, the rest are sbatch's words. The job gets its usual name and arguments only
# from a file, not from sbatch's input. Slurm keeps its own copy.
_SUBMIT = """\
folder=${1%/*}
mkdir -m 700 "$folder" || exit
trap 'rm -rf "$folder"' EXIT
cat >"$1" || exit
shift
sbatch "$@"
"""
# The options of sbatch 26.05 that take no value, or take it only behind "=". All others take the next word.
_BARE = """
    consolidate-segments contiguous exclusive get-user-env help hold ignore-pbs nice no-kill no-requeue
    oom-kill-step overcommit oversubscribe parsable propagate quiet reboot requeue resv-ports spread-job
    spread-segments stepmgr test-only usage use-min-nodes verbose version wait
"""
_BARE_LETTERS = "hkHOQsvVW"


def srun(
    name: Cluster,
    /,
    *words: Words,
    user: User = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Run a job and wait for it, for example: `seltzer srun demo --nodes 2 hostname`

    All words after the cluster's name are srun's; ours come before it.
    """
    _run("srun", words, name, user, namespace, context)


def sbatch(
    name: Cluster,
    /,
    *words: Words,
    user: User = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Submit a batch script, for example: `seltzer sbatch demo --nodes 2 job.sh`

    A script that is a file here is sent along; otherwise sbatch looks for it on the login pod. It also takes one from
    its input: `seltzer sbatch demo < job.sh`. All words after the cluster's name are sbatch's; ours come before it.
    """
    at = script_at(words)
    if at is None or not Path(words[at]).is_file():
        _run("sbatch", words, name, user, namespace, context)
    script = Path(words[at])
    there = f"/tmp/seltzer-{uuid4().hex}/{script.name}"  # noqa: S108 (made there with mkdir, which refuses an old one)
    command = ["sh", "-c", _SUBMIT, "sh", there, *words[:at], there, *words[at + 1 :]]
    _run_command(command, name, user, namespace, context, stdin=script)


def squeue(
    name: Cluster,
    /,
    *words: Words,
    user: User = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """List jobs, for example: `seltzer squeue demo --states all`

    All words after the cluster's name are squeue's; ours come before it.
    """
    _run("squeue", words, name, user, namespace, context)


def sinfo(
    name: Cluster,
    /,
    *words: Words,
    user: User = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """List partitions and nodes, for example: `seltzer sinfo demo --Node`

    All words after the cluster's name are sinfo's; ours come before it.
    """
    _run("sinfo", words, name, user, namespace, context)


def scontrol(
    name: Cluster,
    /,
    *words: Words,
    user: User = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Look at details and change them, for example: `seltzer scontrol demo show job 42`

    What only an administrator may do needs `--user root`, before the cluster's name. All words after it are scontrol's.
    """
    _run("scontrol", words, name, user, namespace, context)


def scancel(
    name: Cluster,
    /,
    *words: Words,
    user: User = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Cancel jobs, for example: `seltzer scancel demo 42`

    All words after the cluster's name are scancel's; ours come before it.
    """
    _run("scancel", words, name, user, namespace, context)


def shell(
    name: Cluster,
    /,
    *words: Words,
    user: User = None,
    login: LoginSet = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Open a shell on a login pod, or run any command there: `seltzer shell demo sacct --allusers`"""
    login_shell = ["sh", "-c", 'exec "$SHELL" -l']
    _run_command(list(words) or login_shell, name, user, namespace, context, login=login)


def hand_over(words: Sequence[str], *, named: bool = True) -> list[str]:
    """The words of one of these verbs, with a `--` after the cluster's name, where the command's own words begin.

    Raises CycloptsError if an option before the name isn't ours: it has to be Slurm's. Without a name (not `named`) the
    command's own words begin behind our options.
    """
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, _ = words[at].partition("=")
        if option in ("--help", "-h"):
            return list(words[: at + 1])
        if option not in _OURS and words[at][:2] != "-n":
            if not named:
                break
            raise CycloptsError(msg=f"{words[at]} comes before the cluster's name; Slurm's options come after it")
        at += 1 if equals or option not in _OURS or option in _OURS_BARE else 2
    if at >= len(words):
        return list(words)
    at += named
    return [*words[:at], "--", *words[at:]]


def script_at(words: Sequence[str]) -> int | None:
    """The index of the script in sbatch's words: the first that is neither an option nor its value."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return at + 1 if at + 1 < len(words) else None
        if not word.startswith("-") or word == "-":
            return at
        at += 2 if _takes_next(word) else 1
    return None


def _takes_next(option: str) -> bool:
    if option.startswith("--"):
        return "=" not in option and option[2:] not in _BARE.split()
    for position, letter in enumerate(option[1:], 2):
        if letter not in _BARE_LETTERS:
            return position == len(option)  # its value is the rest of the word, or the next one
    return False


def _run(
    command: str, words: Sequence[str], name: str, user: str | None, namespace: str | None, context: str | None
) -> NoReturn:
    _run_command([command, *words], name, user, namespace, context)


def _run_command(
    command: Sequence[str],
    name: str,
    user: str | None,
    namespace: str | None,
    context: str | None,
    *,
    stdin: Path | None = None,
    login: str | None = None,
) -> NoReturn:
    place = kube.locate(namespace, context)
    cluster = kube.talk(place, lambda client: kube.cluster(client, place, name))
    pods = deployment(cluster, login)
    if note := hindrance(cluster):
        print(note, file=sys.stderr)
    whom = user or default_user(cluster, command[0])
    kubectl.enter(place, pods, logins.NAME, ["sh", "-c", _BECOME, whom, *command], stdin=stdin)


def deployment(cluster: SlurmCluster, login_set: str | None) -> str:
    """The login pods to use: those of the named set, or else of the first set that has any.

    Raises SeltzerError if there are none.
    """
    name, found = cluster.metadata.name, logins.sets(cluster)
    if login_set is not None:
        found = [each for each in found if each.label == logins.label(login_set)]
        if not found:
            known = suggestion(login_set, [each.name for each in cluster.spec.logins])
            raise SeltzerError(f"{name} has no login set {login_set!r}; {known}")
    with_pods = [each for each in found if each.spec.replicas]
    if not with_pods:
        where = f"replicas of {login_set} in spec.logins" if login_set else "spec.login.replicas"
        raise SeltzerError(
            f"{name} has no login pods, since its {where} is 0; set it to 1 or more with "
            f"'kubectl edit slurmcluster {name}'"
        )
    return f"deployment/{with_pods[0].name}"


def default_user(cluster: SlurmCluster, command: str) -> str:
    """The user for a command without --user. Raises SeltzerError if the cluster has users of its own."""
    if not cluster.spec.users.named:
        return LOGIN_USER
    if command in _READING:
        return "root"
    name = cluster.metadata.name
    raise SeltzerError(
        f"{name} has users of its own: choose one with --user NAME before the cluster's name; "
        f"'seltzer users {name}' lists them"
    )


def hindrance(cluster: SlurmCluster) -> str:
    """A note on why Slurm may not answer; empty if it should. Raises SeltzerError if there is nothing yet."""
    name = cluster.metadata.name
    known = {each.type: each for each in cluster.status.conditions}
    if not known:
        raise SeltzerError(f"the operator hasn't made {name} yet; see 'seltzer status {name}'")
    untrue = (
        known[kind] for kind in ("LoginReady", "ControllerReady") if kind in known and known[kind].status != "True"
    )
    return next((f"note: {name} isn't ready: {each.message} ({each.reason})" for each in untrue), "")
