"""The sources that are written in a SlurmCluster itself."""

from __future__ import annotations

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.plan.users import checks
from seltzer.plan.users.accounts import BUILT_IN, BUILT_IN_USER, INLINE, Account, Group, Refusal, Source


def inline(cluster: SlurmCluster) -> Source | None:
    """The users of spec.users.inline, if there is such a list."""
    listed = cluster.spec.users.inline
    if listed is None:
        return None
    accounts = tuple(
        Account(each.name, each.uid, each.gid, each.groups, each.full_name, each.shell, keys=each.authorized_keys)
        for each in listed.users
    )
    return Source(INLINE, accounts, tuple(Group(each.name, each.gid) for each in listed.groups), explicit=True)


def built_in(cluster: SlurmCluster) -> Source:
    """The only user while spec.users names no source: there whatever keys the spec has."""
    user = BUILT_IN_USER
    keys, wrong = checks.usable_keys(cluster.spec.login.authorized_keys)
    account = Account(user.name, user.uid, full_name=user.full_name, keys=keys)
    refusals = tuple(Refusal(user.name, BUILT_IN, f"spec.login.authorizedKeys: {why}") for why in wrong)
    return Source(BUILT_IN, (account,), unreadable=refusals, explicit=True, lasting=False)
