"""The seam to the sandbox: the one place in the product that names the package `seltzer_sandbox`.

The sandbox is a developer's tool. A development install has it; our wheel and our images don't. Without it the
verbs below are missing from the help, and every other verb works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from seltzer.errors import SeltzerError

PACKAGE: Final = "seltzer_sandbox"

# The sandbox's verbs, and where the parser imports each from when it is called.
VERBS: Final = {"demo": f"{PACKAGE}.demo:demo", "sandbox": f"{PACKAGE}.cli:app"}


@dataclass(frozen=True)
class RunningSandbox:
    """What the other verbs use of a sandbox that is up."""

    name: str
    kubeconfig: Path
    kubectl: Path


def installed() -> bool:
    """Whether the package is there. This looks for it and imports nothing."""
    return find_spec(PACKAGE) is not None


def require(verb: str) -> None:
    """Raises a line that says what to do, where the package is missing."""
    if not installed():
        raise SeltzerError(
            f"'seltzer {verb}' needs the sandbox, which is not part of this installation; "
            "run 'make setup' in a checkout of the repository and use its .venv/bin/seltzer"
        )


def running() -> RunningSandbox | None:
    """The default sandbox, if the package is installed and the sandbox is up."""
    if not installed():
        return None
    found: RunningSandbox | None = import_module(f"{PACKAGE}.cli").running()
    return found


def kubectl(words: Sequence[str]) -> None:
    """Replaces this process by kubectl on a sandbox, with these words as they are."""
    import_module(f"{PACKAGE}.cli").become_kubectl(words)
