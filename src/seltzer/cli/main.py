"""The `seltzer` command, also installed as `kubectl-slurm`."""

from __future__ import annotations

import sys
from typing import Literal

from cyclopts import App, CycloptsError, Group
from rich.console import Console
from rich.text import Text

from seltzer import __version__, paths
from seltzer.cli import sandbox
from seltzer.errors import SeltzerError
from seltzer.view import colours

USAGE = 2  # as most commands exit after bad arguments
INTERNAL = 70  # EX_SOFTWARE
INTERRUPTED = 130  # as a shell reports a program that Ctrl-C ended


# What there is: group, verb and what it is for, each imported by its path when it is needed and not before.
# Those without a path are the sandbox's: `seltzer.cli.sandbox` has theirs.
_VERBS = (
    ("Seltzer on Kubernetes", "install:install", "Install Seltzer, or print its manifests."),
    ("Seltzer on Kubernetes", "install:upgrade", "Upgrade Seltzer to the version of this command."),
    ("Seltzer on Kubernetes", "install:uninstall", "Remove Seltzer."),
    ("Seltzer on Kubernetes", "version:version", "Show the installed versions."),
    ("Seltzer on Kubernetes", "operator:operator", "Run the operator, as its pods do."),
    ("Clusters", "create:create", "Create a Slurm cluster, or print a manifest to start from."),
    ("Clusters", "status:status", "Show a cluster, its nodes and jobs, and its problems."),
    ("Clusters", "nodes:nodes", "List nodes with their pods, states, reasons and jobs."),
    ("Clusters", "explain:explain", "Explain why a job waits, or why a node takes no jobs."),
    ("Clusters", "top.command:top", "Watch a cluster live, full-screen."),
    ("Clusters", "events:events", "Show what happened to a cluster."),
    ("Clusters", "logs:logs", "Print the log of a daemon, a node or the operator."),
    ("Clusters", "users:users", "List the users of a cluster, and where each comes from."),
    ("Clusters", "scale:scale", "Change the number of nodes in a NodeSet."),
    ("Clusters", "drain:drain", "Stop new jobs from starting on nodes."),
    ("Clusters", "drain:resume", "Return drained nodes to service."),
    ("Clusters", "failover:failover", "Move slurmctld to another pod."),
    ("Clusters", "debug:debug", "Hold slurmctld down for debugging, or release it."),
    ("Slurm", "slurm:shell", "Open a shell on a login pod."),
    ("Slurm", "ssh:ssh", "Log in to a login pod with ssh."),
    ("Slurm", "ssh:cp", "Copy files to a login pod or from it."),
    ("Slurm", "slurm:srun", "Run a job and wait for it."),
    ("Slurm", "slurm:sbatch", "Submit a batch script."),
    ("Slurm", "slurm:squeue", "List jobs."),
    ("Slurm", "slurm:sinfo", "List partitions and nodes."),
    ("Slurm", "slurm:scontrol", "Show and change details."),
    ("Slurm", "slurm:scancel", "Cancel jobs."),
    ("This machine", "demo", "Create a sandbox with a Slurm cluster and run jobs."),
    ("This machine", "sandbox", "A real multi-node Kubernetes on this machine."),
    ("This machine", "completion:completion", "Print the completion script for a shell."),
)
_PASSED_ON = ("shell", "ssh", "cp", "srun", "sbatch", "squeue", "sinfo", "scontrol", "scancel")
_GLOBAL = ("-n", "--namespace", "--context")


def build(asked: str = "", help_format: Literal["markdown", "plaintext"] = "markdown") -> App:
    """All verbs. The one in use has the help of its docstring, the others have one line."""
    app = App(
        "seltzer",
        help="Slurm clusters on Kubernetes.",
        version=__version__,
        help_format=help_format,
        suppress_keyboard_interrupt=False,
    )
    groups = {name: Group(name, sort_key=at) for at, name in enumerate(dict.fromkeys(name for name, _, _ in _VERBS))}
    sandbox_installed = sandbox.installed()
    for at, (group, path, says) in enumerate(_VERBS):
        module, _, function = path.partition(":")
        verb = function or module
        if verb in sandbox.VERBS and not sandbox_installed:
            continue
        where = sandbox.VERBS.get(verb, f"seltzer.cli.{path}")
        app.command(where, name=verb, help=None if verb == asked else says, group=groups[group], sort_key=at)
    app.register_install_completion_command("--install-completion")
    options = Group("Options", sort_key=len(groups))
    for flag in ("--help", "--install-completion", "--version"):
        app[flag].group = options
    return app


def main() -> None:
    """Runs one command. Every failure ends in one line and an exit code."""
    try:
        words = arrange(sys.argv[1:])
        if words and words[0] in sandbox.VERBS:
            sandbox.require(words[0])
        # kubectl's words are its own: they must not be read as ours, "--" and "--help" least of all.
        if words[:2] == ["sandbox", "kubectl"] and words[2:] not in (["--help"], ["-h"]):
            sandbox.kubectl(words[2:])
        # The list of verbs has no markup, and importing the markup library takes longer than everything else.
        plain = words in ([], ["--help"], ["-h"])
        app = build("".join(words[:1]), help_format="plaintext" if plain else "markdown")
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except SeltzerError as error:
        _fail(str(error), 1)
    except CycloptsError as error:
        _fail(str(error), USAGE)
    except KeyboardInterrupt:
        local = "".join(sys.argv[1:2]) in sandbox.VERBS
        again = "; nothing is lost: run the same command again, or 'seltzer sandbox down'" if local else ""
        _fail(f"interrupted{again}", INTERRUPTED, prefix="")
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone: print nothing at exit either
        sys.exit(1)
    except OSError as error:
        # An error of the machine: a full disk, a folder without write permission.
        _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}{_crash_log()}", 1)
    except Exception as error:
        _fail(f"{error} ({type(error).__name__}, a bug in seltzer{_crash_log()})", INTERNAL)


def arrange(words: list[str]) -> list[str]:
    """The words in the parser's order: flags from before the verb follow it, and Slurm's own words follow a `--`."""
    at = 0
    while at < len(words) and words[at].partition("=")[0] in _GLOBAL:
        at += 1 if "=" in words[at] else 2
    words = [*words[at : at + 1], *words[:at], *words[at + 1 :]] if at < len(words) else words
    if words[:1] and words[0] in _PASSED_ON:
        from seltzer.cli import slurm

        # The cluster's name may be in any of cp's words.
        return [words[0], *slurm.hand_over(words[1:], named=words[0] != "cp")]
    return words


def _fail(message: str, code: int, prefix: str = "error: ") -> None:
    line = Text.assemble((prefix, colours.BAD), " ".join(message.split()))
    Console(stderr=True, highlight=False, emoji=False).print(line, soft_wrap=True)
    sys.exit(code)


def _crash_log() -> str:
    """Writes the traceback to a file, and returns words that say where it is."""
    import traceback

    log = paths.state() / "logs" / "crash.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(sys.argv)}\n{traceback.format_exc()}\n")
    except OSError:
        return ""
    return f"; see {log}"
