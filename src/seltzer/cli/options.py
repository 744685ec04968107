"""The flags that the verbs share, spelled and meant as kubectl has them."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from cyclopts import Parameter


class Output(Enum):
    text = "text"
    json = "json"
    yaml = "yaml"


OutputFlag = Annotated[Output, Parameter(name=["--output", "-o"], help="How to print the answer.")]
Namespace = Annotated[
    str | None, Parameter(name=["--namespace", "-n"], help="The namespace; without it, that of your kubeconfig.")
]
Context = Annotated[str | None, Parameter(help="Which context of your kubeconfig to use.")]
SystemNamespace = Annotated[str, Parameter(name=["--namespace", "-n"], help="The operator's namespace.")]
Follow = Annotated[bool, Parameter(name=["--follow", "-f"], negative="", help="Go on with what is new.")]
Wait = Annotated[bool, Parameter(negative="", help="Wait until it is so, and show how far it is.")]
Timeout = Annotated[float, Parameter(help="How many seconds to wait at most.")]
User = Annotated[str, Parameter(help="Whom to be on the login pod.")]

SYSTEM_NAMESPACE = "seltzer-system"
