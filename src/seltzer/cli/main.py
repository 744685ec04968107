"""The `seltzer` command, also installed as `kubectl-slurm`."""

from __future__ import annotations

import sys
import traceback

from cyclopts import App, CycloptsError
from rich.console import Console

from seltzer import __version__, paths
from seltzer.errors import SeltzerError

INTERRUPTED = 130  # as a shell reports a program that Ctrl-C ended
INTERNAL = 70  # EX_SOFTWARE


def build() -> App:
    app = App(
        "seltzer",
        help="Slurm clusters on Kubernetes.",
        version=__version__,
        help_format="markdown",
        suppress_keyboard_interrupt=False,
    )
    # By name, so that a command imports what it needs and not what its neighbours need.
    app.command("seltzer.cli.demo:demo", name="demo", help="Bring up a sandbox with Slurm in it and run a job.")
    app.command("seltzer.cli.sandbox:app", name="sandbox", help="A real multi-node Kubernetes on this machine.")
    app.register_install_completion_command("--install-completion")
    return app


def main() -> None:
    """Run one command; every way that it can fail ends in one line and an exit code."""
    errors = Console(stderr=True, highlight=False)
    try:
        build()(exit_on_error=False, print_error=False, result_action="return_value")
    except (SeltzerError, CycloptsError) as error:
        # Usage errors exit with 2, as those of most commands do.
        errors.print(f"[red]error:[/] {_one_line(error)}", soft_wrap=True, markup=True)
        sys.exit(2 if isinstance(error, CycloptsError) else 1)
    except KeyboardInterrupt:
        errors.print("interrupted; nothing is lost: run the same command again, or 'seltzer sandbox down'")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has had enough; say nothing at exit either
        sys.exit(1)
    except Exception as error:
        # A bug of ours. Whoever reports it needs the details; whoever meets it needs to know where they are.
        log = paths.logs() / "crash.log"
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(sys.argv)}\n{traceback.format_exc()}\n")
        errors.print(
            f"[red]error:[/] {_one_line(error)} ({type(error).__name__}, a bug in seltzer; see {log})", soft_wrap=True
        )
        sys.exit(INTERNAL)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.replace("[", r"\[")
