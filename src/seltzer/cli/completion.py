"""`seltzer completion`: shell completion."""

from __future__ import annotations

from typing import Literal

from seltzer.cli import main


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion script for a shell, for example: `source <(seltzer completion bash)`

    `seltzer --install-completion` installs it where your shell finds it.

    Parameters
    ----------
    shell
        The shell.
    """
    print(main.build().generate_completion(shell=shell))
