"""Login pods: `spec.login`, and the further sets of them in `spec.logins`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from .common import Duration, Image, ObjectName, Part, PodTemplate, Quantity, Resources, Rule, text
from .users import UnixName

SCALAR_SET = Meta(extra_json_schema={"x-kubernetes-list-type": "set"})
LoginSetName = Annotated[
    str,
    text(
        r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z",
        "names of Services end with it: use at most 15 lower-case letters, digits and hyphens, with a letter first",
        15,
    ),
]
TAKEN = ("config", "group", "home", "keys", "login", "passwd", "slurmctld", "slurmd", "slurmdbd", "slurmrestd", "uids")
"""Objects of a cluster called `<cluster>-login` end with these words, all names of components among them."""
LOGINS_RULE = Rule(
    f"!has(self.logins) || self.logins.all(each, !(each.name in {list(TAKEN)})"
    " && !each.name.matches('^(keys|login|trial)-'))",
    f"a login set can't be called {', '.join(TAKEN[:-1])} or {TAKEN[-1]}, nor begin with keys-, login- or trial-:"
    " choose another name",
    ".logins",
)
AuthorizedKey = Annotated[
    str, text(r"^[^\r\n]+\Z", "a key is one line: write each line of authorized_keys as one item of the list", 16384)
]


class Service(Part, frozen=True, kw_only=True):
    """The Service of the login pods."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Who can reach it: pods only, clients that reach a Kubernetes node, or clients that reach the load balancer."""

    annotations: Mapping[str, str] = {}
    """Annotations for the load balancer or the DNS controller of your cloud."""


class SecretRef(Part, frozen=True, kw_only=True):
    """A Secret in the cluster's namespace."""

    name: ObjectName
    """The name of the Secret."""


class SessionLimits(Part, frozen=True, kw_only=True):
    """What one process of a person on a login pod may take. `resources` limits all of them together."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.memory) || quantity(string(self.memory)).compareTo(quantity('64Mi')) >= 0",
            "no shell starts with so little memory: use 64Mi or more",
            ".memory",
        ),
    )

    memory: Quantity | None = None
    """The memory that a process can allocate, at least 64Mi, such as 8Gi; by default as much as the pod has."""

    cpu_time: Duration | None = None
    """The CPU time after which a process is ended, such as 30m; by default never. Run long work as jobs."""


class LoginPods(Part, frozen=True, kw_only=True):
    """Pods with sshd and Slurm's commands, where people log in."""

    replicas: Annotated[int, Meta(ge=0, le=64)] = 1
    """How many login pods there are; 0 for none."""

    image: Image | None = None
    """The image to run; by default the one released with the operator."""

    service: Service = Service()

    session_timeout: Duration = "10m"
    """How long a login pod that is replaced or deleted waits for people to log out, such as 30m or 8h. They see a
    message. A pod on which nobody is logged in goes at once."""

    limits: SessionLimits = SessionLimits()

    resources: Resources = Resources()
    """CPU and memory of the login container."""

    pod_template: PodTemplate = PodTemplate()
    """Changes to the pods, on top of spec.podTemplate. The main container is called login."""


class Login(LoginPods, frozen=True, kw_only=True):
    """Pods with sshd and Slurm's commands, where people log in."""

    authorized_keys: Annotated[tuple[AuthorizedKey, ...], Meta(max_length=256), SCALAR_SET] = ()
    """SSH public keys that may log in as `user`, each as a line of an authorized_keys file. That is the only user
    while spec.users names no source; users from a source have their own keys."""

    authorized_keys_secret: SecretRef | None = None
    """A Secret that holds more public keys of `user` under the key authorized_keys."""


class LoginSet(LoginPods, frozen=True, kw_only=True):
    """More login pods, with an image, users and limits of their own. The host key is that of spec.login."""

    name: LoginSetName
    """The name of the set. Its Deployment and its Service are called `<cluster>-login-<name>`."""

    users: Annotated[tuple[UnixName, ...], Meta(max_length=256), SCALAR_SET] = ()
    """The users who may log in, beside the members of `groups`. If both lists are empty, all users may."""

    groups: Annotated[tuple[UnixName, ...], Meta(max_length=64), SCALAR_SET] = ()
    """The groups whose members may log in."""
