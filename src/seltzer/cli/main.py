"""The `seltzer` command, also installed as `kubectl-slurm`."""

from __future__ import annotations

import sys
import traceback

from cyclopts import App, CycloptsError
from rich.console import Console
from rich.text import Text

from seltzer import __version__, paths
from seltzer.errors import SeltzerError

USAGE = 2  # as most commands exit when they don't understand
INTERNAL = 70  # EX_SOFTWARE
INTERRUPTED = 130  # as a shell reports a program that Ctrl-C ended


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
    try:
        if sys.argv[1:3] == ["sandbox", "kubectl"] and sys.argv[3:] not in (["--help"], ["-h"]):
            _kubectl(sys.argv[3:])
        build()(exit_on_error=False, print_error=False, result_action="return_value")
    except SeltzerError as error:
        _fail(str(error), 1)
    except CycloptsError as error:
        _fail(str(error), USAGE)
    except KeyboardInterrupt:
        line = "interrupted; nothing is lost: run the same command again, or 'seltzer sandbox down'"
        _fail(line, INTERRUPTED, prefix="")
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has had enough; say nothing at exit either
        sys.exit(1)
    except OSError as error:
        # The machine said no: a full disk, a folder that can't be written.
        _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}{_crash_log()}", 1)
    except Exception as error:
        _fail(f"{error} ({type(error).__name__}, a bug in seltzer{_crash_log()})", INTERNAL)


def _kubectl(words: list[str]) -> None:
    """kubectl's words are its own: they must not be read as ours, "--" and "--help" least of all."""
    from seltzer.cli import sandbox
    from seltzer.sandbox.layout import DEFAULT_NAME

    name = DEFAULT_NAME
    if words[:1] == ["--name"] and len(words) > 1:
        name, words = words[1], words[2:]
    elif words and words[0].startswith("--name="):
        name, words = words[0].removeprefix("--name="), words[1:]
    sandbox.kubectl(*words[words[:1] == ["--"] :], name=name)


def _fail(message: str, code: int, prefix: str = "error: ") -> None:
    line = Text.assemble((prefix, "red"), " ".join(message.split()))
    Console(stderr=True, highlight=False, emoji=False).print(line, soft_wrap=True)
    sys.exit(code)


def _crash_log() -> str:
    """Keep the details for whoever has to find out, and tell where they are."""
    log = paths.state() / "logs" / "crash.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(sys.argv)}\n{traceback.format_exc()}\n")
    except OSError:
        return ""
    return f"; see {log}"
