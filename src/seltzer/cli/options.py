"""The flags that verbs share, with kubectl's names and meanings."""

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
    str | None, Parameter(name=["--namespace", "-n"], help="The namespace; by default, that of your kubeconfig.")
]
Context = Annotated[str | None, Parameter(help="The context of your kubeconfig.")]
SystemNamespace = Annotated[str, Parameter(name=["--namespace", "-n"], help="The operator's namespace.")]
Follow = Annotated[bool, Parameter(name=["--follow", "-f"], negative="", help="Follow the output.")]
Wait = Annotated[bool, Parameter(negative="", help="Wait until it is done, and show the progress.")]
Timeout = Annotated[float, Parameter(help="How many seconds to wait at most.")]
User = Annotated[
    str | None,
    Parameter(help="The user on the login pod. Needed if spec.users names a source; otherwise there is one user."),
]
LoginSet = Annotated[
    str | None, Parameter(name="--login", help="The login set, an item of spec.logins; by default that of spec.login.")
]

SYSTEM_NAMESPACE = "seltzer-system"
