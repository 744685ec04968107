"""Groups have the members that a directory gives them, whichever way it does, and loops end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seltzer.directory.accounts import Refusal
from seltzer.directory.groups import DEEPEST, Group, Memberships
from seltzer.directory.messages import Entry
from seltzer.directory.schema import ACTIVE_DIRECTORY, RFC2307, RFC2307BIS, Schema


def user_dn(name: str) -> str:
    return f"uid={name},ou=people,dc=x"


def group_dn(name: str) -> str:
    return f"cn={name},ou=groups,dc=x"


def entry(name: str, gid: int | str | None, *members: str, **more: list[bytes]) -> Entry:
    attributes = {"cn": [name.encode()], "member": [member.encode() for member in members], **more}
    return Entry(group_dn(name), {**attributes, **({"gidnumber": [str(gid).encode()]} if gid is not None else {})})


def resolved(*groups: Entry, users: str = "ada bob", schema: Schema = RFC2307BIS) -> tuple[list[Group], list[Refusal]]:
    memberships = Memberships(schema)
    for each in groups:
        memberships.add_group(each)
    for name in users.split():
        memberships.add_user(Entry(user_dn(name), {}), name)
    return memberships.resolve(users.split()), memberships.refusals


def test_members_by_name_are_those_who_are_users() -> None:
    hpc = Entry(
        group_dn("hpc"), {"cn": [b"hpc"], "gidnumber": [b"3000"], "memberuid": [b"bob", b"ada", b"eve", b"\xff"]}
    )
    assert resolved(hpc, schema=RFC2307) == ([Group("hpc", 3000, ("ada", "bob"))], [])


def test_members_by_dn_are_found_in_any_spelling() -> None:
    hpc = entry("hpc", 3000, "UID=ada, OU=people, dc=x", user_dn("bob") + "#'0'B", user_dn("eve"), "cn=nobody", "")
    assert resolved(hpc) == ([Group("hpc", 3000, ("ada", "bob"))], [])


def test_the_members_of_a_group_in_a_group_belong_to_both() -> None:
    inner, outer = entry("inner", 3001, user_dn("ada")), entry("outer", 3000, group_dn("inner"), user_dn("bob"))
    assert resolved(outer, inner) == ([Group("inner", 3001, ("ada",)), Group("outer", 3000, ("ada", "bob"))], [])


def test_groups_that_contain_each_other_end() -> None:
    one, two = entry("one", 3001, group_dn("two"), user_dn("ada")), entry("two", 3002, group_dn("one"), user_dn("bob"))
    assert resolved(one, two) == ([Group("one", 3001, ("ada", "bob")), Group("two", 3002, ("ada", "bob"))], [])


def test_groups_nested_too_deep_are_refused_and_no_others() -> None:
    chain = [entry(f"g{n}", 3000 + n, group_dn(f"g{n + 1}")) for n in range(DEEPEST + 2)]
    groups, refusals = resolved(*chain, entry("hpc", 4000, user_dn("ada")))
    assert refusals == [
        Refusal("g0", f"this group: groups are nested in it more than {DEEPEST} deep: make that flatter", is_group=True)
    ]
    assert len(groups) == len(chain) and Group("hpc", 4000, ("ada",)) in groups


def test_a_group_that_cannot_be_used_is_named_and_its_members_count_in_groups_around_it() -> None:
    wheel, hpc = entry("Wheel", 10, user_dn("ada")), entry("hpc", 3000, group_dn("Wheel"))
    groups, refusals = resolved(wheel, hpc)
    assert groups == [Group("hpc", 3000, ("ada",))]
    assert [each.name for each in refusals] == ["Wheel"]
    assert refusals[0].why.startswith("this group: Slurm and the shell can't use the name 'Wheel': ")
    _, refusals = resolved(entry("wheel", 10))
    assert refusals[0].why == "this group: its gidnumber 10 belongs to the system: use one from 1000 to 2147483647"


def test_two_groups_of_one_name_are_both_refused() -> None:
    other = entry("hpc", 3001)._replace(dn="cn=hpc,ou=other,dc=x")
    assert resolved(entry("hpc", 3000), other) == (
        [],
        [Refusal("hpc", "2 groups have this name: rename all but one", is_group=True)],
    )


def test_the_primary_group_of_active_directory_has_its_members_though_it_does_not_name_them() -> None:
    sid = bytes.fromhex("0105000000000005150000000102030405060708090a0b0c01020000")  # …-513
    everybody = entry("Domain-Users", 3513, objectsid=[sid], samaccountname=[b"Domain-Users"])
    outer = entry("outer", None, group_dn("Domain-Users"), samaccountname=[b"outer"])
    unix = entry("unix", 3000, group_dn("outer"), samaccountname=[b"unix"])
    memberships = Memberships(ACTIVE_DIRECTORY)
    for each in (everybody, outer, unix):
        memberships.add_group(each)
    assert memberships.group_of == {513: 3513}
    memberships.add_user(Entry("CN=Ada,DC=x", {}), "ada", 513)
    memberships.add_user(Entry("CN=Bob,DC=x", {}), "bob", 514)
    assert memberships.resolve(["ada", "bob"]) == [Group("domain-users", 3513, ("ada",)), Group("unix", 3000, ("ada",))]
    assert memberships.refusals == []


NAMES = "abcdef"
EDGES = st.dictionaries(st.sampled_from(NAMES), st.frozensets(st.sampled_from(NAMES + "uvw"), max_size=5))


@given(EDGES)
def test_members_are_all_who_can_be_reached(edges: dict[str, frozenset[str]]) -> None:
    def reached(name: str) -> set[str]:
        seen, ahead = {name}, [name]
        while ahead:
            new = edges.get(ahead.pop(), frozenset()) - seen
            seen |= new
            ahead += new
        return seen & set("uvw")

    entries = [
        entry(name, 3000 + ord(name), *(user_dn(each) if each in "uvw" else group_dn(each) for each in edges[name]))
        for name in edges
    ]
    groups, refusals = resolved(*entries, users="u v w")
    assert refusals == []
    assert {group.name: set(group.members) for group in groups} == {name: reached(name) for name in edges}
