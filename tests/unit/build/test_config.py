"""The configuration is ours, the user's on top of it, and nothing that only Slurm would read out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.builders.objects import cluster, nodeset

from seltzer.api.config import OWNED
from seltzer.api.nodeset import NodeSet, Partition
from seltzer.build.config import RESTART_KEYS, ConfigRefused, Rendered, identity, render, restart_keys
from seltzer.slurm import conf


def with_conf(text: str, *nodesets: NodeSet) -> Rendered:
    return render(cluster({"config": {"slurm.conf": text}}), nodesets)


def parsed(rendered: Rendered) -> conf.Conf:
    return conf.parse(rendered.files["slurm.conf"])


def lines(rendered: Rendered) -> list[conf.Line]:
    return [line for line in parsed(rendered).lines if isinstance(line, conf.Line)]


def partitions(rendered: Rendered) -> dict[str, str]:
    found = parsed(rendered).about("PartitionName")
    return {line.value: " ".join(f"{key}={value}" for key, value in line.pairs[1:]) for line in found}


def test_an_empty_spec_is_a_whole_configuration() -> None:
    rendered = render(cluster({"controller": {"keepJobs": False}}), [])
    found = parsed(rendered)
    assert set(rendered.files) == {"slurm.conf", "cgroup.conf", "seltzer.digest", "seltzer.restart"}
    assert found.get("JobSubmitPlugins") is None
    assert found.get("ClusterName") == "demo"
    assert found.get("SlurmctldHost") == "demo-slurmctld(demo-slurmctld.ns.svc)"
    assert found.get("StateSaveLocation") is None, "the guard adds it"
    assert rendered.files["cgroup.conf"] == "CgroupPlugin=disabled\n"


def test_the_clusters_name_in_slurm_can_be_another() -> None:
    assert parsed(render(cluster({"clusterName": "physics_2"}), [])).get("ClusterName") == "physics_2"


def test_no_key_is_there_twice() -> None:
    keys = [line.key.lower() for line in lines(with_conf("TreeWidth=16\nEpilog=/a\nepilog=/b"))]
    assert len(keys) == len(set(keys))


def test_how_daemons_find_and_trust_each_other_is_only_ours() -> None:
    """slurmrestd has a file of its own with just these: it stays right whatever the user configures."""
    assert {key for key, _ in identity(cluster())} <= OWNED.keys()


def test_a_key_of_the_users_replaces_ours() -> None:
    assert "TaskPlugin=task/none\n" in render(cluster(), []).files["slurm.conf"]
    text = with_conf("taskplugin=task/affinity").files["slurm.conf"]
    assert "TaskPlugin=task/none" not in text
    assert "taskplugin=task/affinity\n" in text


@pytest.mark.parametrize("key", ["SlurmctldParameters", "SlurmdParameters"])
def test_flags_of_the_users_are_added_to_ours(key: str) -> None:
    ours = parsed(render(cluster(), [])).get(key)
    assert ours
    assert parsed(with_conf(f"{key.lower()}=a, {ours},b".replace(", ", ","))).get(key) == f"{ours},a,b"


def test_several_keys_in_one_line_are_several_keys() -> None:
    """Slurm reads them so."""
    text = with_conf('Epilog=/a TreeWidth=16 NodeName=n1 CPUs=2 Comment="a b"').files["slurm.conf"]
    assert "Epilog=/a\nTreeWidth=16\n" in text
    assert 'NodeName=n1 CPUs=2 Comment="a b"\n' in text
    assert "TreeWidth=65533" not in text


@pytest.mark.parametrize("key", OWNED)
@pytest.mark.parametrize("form", ["{}=x", "A=1 {}=x", " {} = x", "Epilog=/a \\\n {}=x", "NodeName=n {}=x"])
def test_keys_that_only_seltzer_sets_are_refused_with_the_reason(key: str, form: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        with_conf(form.format(key.lower()))
    assert str(refused.value) == f"slurm.conf sets {key}, but {OWNED[key]}"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"slurm.conf": "Include other.conf"}, "slurm.conf includes another file"),
        ({"gres.conf": "Name=gpu\ninclude x"}, "gres.conf includes another file"),
        ({"plugstack.conf": "include /etc/x"}, "plugstack.conf includes another file"),
        ({"slurm.conf": "A=1\nnonsense"}, "slurm.conf line 2: expected Key=Value"),
        ({"cgroup.conf": "nonsense"}, "cgroup.conf line 1: expected Key=Value"),
        ({"slurm.conf": "Epilog=/\x07"}, "can't hold the character"),
        ({"slurm.key": "x"}, "remove the file"),
        ({"a.JWKS": "x"}, "remove the file"),
        ({"seltzer.digest": "x"}, "a name that Seltzer uses"),
        ({"../x": ""}, "isn't a file name"),
        ({"slurm.conf": "NodeSet=set_x Feature=x"}, "choose a name without set_"),
        ({"slurm.conf": "NodeSet=cpu-12 Feature=x"}, "a node's name too"),
        ({"slurm.conf": "PartitionName=cpu Nodes=ALL"}, "which NodeSet cpu has too"),
        ({f"{n}.lua": "x" * 130000 for n in range(7)}, "bytes: remove some"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(config: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        render(cluster({"config": config}), [nodeset()])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_files_are_passed_as_they_are() -> None:
    files = {"job_submit.lua": "include = 1\n", "topology.yaml": "- a", "cgroup.conf": "CgroupPlugin=autodetect #\n"}
    rendered = render(cluster({"config": files, "controller": {"keepJobs": False}}), [])
    assert {name: rendered.files[name] for name in files} == files


def keeping(plugins: str | None, files: Mapping[str, str]) -> Rendered:
    """With `controller.keepJobs`, for a site that has these plugins and files."""
    text = "" if plugins is None else f"JobSubmitPlugins={plugins}"
    return render(cluster({"config": {"slurm.conf": text, **files}, "controller": {"keepJobs": True}}), [])


@pytest.mark.parametrize(
    ("theirs", "all_of_them"),
    [
        (None, "lua"),
        ("all_partitions", "all_partitions,lua"),
        ("require_timelimit,job_submit/defaults", "require_timelimit,job_submit/defaults,lua"),
    ],
)
def test_jobs_are_kept_by_one_more_plugin_behind_the_sites(theirs: str | None, all_of_them: str) -> None:
    rendered = keeping(theirs, {})
    assert parsed(rendered).get("JobSubmitPlugins") == all_of_them
    assert "SELTZER_JOB" in rendered.files["job_submit.lua"]
    assert "job_submit_site.lua" not in rendered.files


@pytest.mark.parametrize("theirs", ["lua", "job_submit/lua", "lua,all_partitions", "all_partitions,lua"])
def test_a_sites_own_script_is_beside_ours_and_its_plugins_stay_as_they_are(theirs: str) -> None:
    rendered = keeping(theirs, {"job_submit.lua": "-- the site's\n"})
    assert parsed(rendered).get("JobSubmitPlugins") == theirs
    assert "SELTZER_JOB" in rendered.files["job_submit.lua"]
    assert rendered.files["job_submit_site.lua"] == "-- the site's\n"


def test_a_script_that_the_site_does_not_use_is_not_run_for_it() -> None:
    rendered = keeping(None, {"job_submit.lua": "-- the site's\n"})
    assert "job_submit_site.lua" not in rendered.files
    assert "the site's\n" not in rendered.files["job_submit.lua"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "slurm.conf has JobSubmitPlugins=lua, but config has no job_submit.lua: add it, or remove lua"),
        ({"job_submit.lua": "", "job_submit_site.lua": ""}, "for your job_submit.lua: rename the file"),
    ],
)
def test_a_site_whose_script_cannot_be_run_beside_ours_is_reported(files: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigRefused, match=words):
        keeping("lua", files)


TEXT = st.text(alphabet=st.sampled_from('aB=," \\#\n\t\r\0;é'), max_size=40)


@given(TEXT, st.sampled_from(["", "Epilog=", 'Epilog="', "Epilog=/a \\\n", "# "]))
def test_slurm_reads_the_users_keys_as_they_were_parsed_and_no_others(text: str, before: str) -> None:
    """Whatever quotes, continuations and comments were in it, and even if what follows is ours."""
    text = f"{before}{text}"
    try:
        rendered = with_conf(text, nodeset())
    except ConfigRefused as refused:
        assert "\n" not in str(refused)
        return
    pairs = [pair for line in conf.parse(text).lines if isinstance(line, conf.Line) for pair in line.pairs]
    theirs = {key.lower(): value for key, value in pairs}
    ours = {line.key.lower(): line.value for line in lines(render(cluster(), [nodeset()]))}
    assert {line.key.lower(): line.value for line in lines(rendered)} == {**ours, **theirs}
    assert len(lines(rendered)) + 1 == rendered.files["slurm.conf"].count("\n"), "one line each, and the comment"


PAIRS = st.tuples(st.sampled_from(["MaxTime", "State", "Default"]), st.sampled_from(["YES", "NO", "1", "UP"]))
SETS = st.builds(
    lambda name, namespace, day, partition, options, enabled: nodeset(
        {
            "partition": {"name": partition, "options": " ".join("=".join(pair) for pair in options)}
            if enabled
            else {"enabled": False}
        },
        name=name,
        namespace=namespace,
        created=f"2026-01-0{day}T00:00:00Z",
    ),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["ns", "other"]),
    st.integers(1, 3),
    st.sampled_from([None, "p", "q"]),
    st.lists(PAIRS, max_size=3),
    st.booleans(),
)


@given(st.lists(SETS, max_size=5, unique_by=lambda one: (one.metadata.namespace, one.metadata.name)), st.randoms())
def test_the_order_of_nodesets_makes_no_difference(sets: list[NodeSet], random: Any) -> None:
    shuffled = list(sets)
    random.shuffle(shuffled)
    rendered = render(cluster(), sets)
    assert rendered == render(cluster(), shuffled)
    named = {line.value for line in parsed(rendered).about("NodeSet")}
    assert named == {f"set_{one.metadata.name}" for one in sets}
    assert all(set((line.get("Nodes") or "?").split(",")) <= named for line in parsed(rendered).about("PartitionName"))


def test_the_oldest_partition_is_the_default() -> None:
    young, old = nodeset(name="a", created="2026-02-01T00:00:00Z"), nodeset(name="b", created="2026-01-01T00:00:00Z")
    assert partitions(render(cluster(), [young, old])) == {"b": "Nodes=set_b Default=YES", "a": "Nodes=set_a"}


@pytest.mark.parametrize(
    ("options", "text", "defaults"),
    [
        (["", ""], "", ["a"]),
        (["", "default=yes"], "", ["b"]),
        (["Default=NO", ""], "", ["b"]),
        (["Default=NO", "Default=NO"], "", []),
        (["", ""], "PartitionName=mine Nodes=ALL Default=YES", ["mine"]),
        (["", ""], "PartitionName=mine Nodes=ALL Default=NO", ["a"]),
    ],
)
def test_there_is_one_default_unless_everybody_says_no(options: list[str], text: str, defaults: list[str]) -> None:
    sets = [
        nodeset({"partition": {"options": said} if said else {}}, name=name)
        for name, said in zip("ab", options, strict=True)
    ]
    found = partitions(with_conf(text, *sets))
    assert [name for name, line in found.items() if "default=yes" in line.lower()] == defaults


def test_nodesets_with_one_partition_share_its_line() -> None:
    first = nodeset({"partition": {"name": "all-of-it", "options": "MaxTime=1 Default=YES"}}, name="a")
    second = nodeset(
        {"partition": {"name": "all-of-it", "options": "MaxTime=2 State=UP"}}, name="b", created="2026-02-01T00:00:00Z"
    )
    assert partitions(render(cluster(), [second, first])) == {
        "all-of-it": "Nodes=set_a,set_b MaxTime=1 Default=YES State=UP"
    }


def test_a_nodeset_without_a_partition_is_there_for_the_users_own() -> None:
    alone = nodeset({"partition": {"enabled": False}}, name="cpu")
    rendered = with_conf("PartitionName=cpu Nodes=set_cpu", alone)
    assert partitions(rendered) == {"cpu": "Nodes=set_cpu"}
    assert parsed(rendered).about("NodeSet")[0].pairs == (("NodeSet", "set_cpu"), ("Feature", "set_cpu"))


def test_defaults_of_the_user_come_before_the_partitions_that_heed_them() -> None:
    assert list(partitions(with_conf("PartitionName=DEFAULT MaxTime=5", nodeset()))) == ["DEFAULT", "cpu"]


@pytest.mark.parametrize("options", ["Nodes=ALL", "partitionname=x", "SlurmUser=root", "MaxTime"])
def test_options_of_a_partition_that_are_not_the_nodesets_to_set(options: str) -> None:
    """The API server refuses most of them, but not every API server has the newest CRD."""
    plain = nodeset()
    partition = Partition(options=options)
    bad = structs.replace(plain, spec=structs.replace(plain.spec, partition=partition))
    with pytest.raises(ConfigRefused, match=r"NodeSet ns/cpu: partition\.options"):
        render(cluster(), [bad])


def test_the_digest_tells_configurations_apart() -> None:
    texts = ["", "Epilog=/a", "Epilog=/b"]
    digests = [with_conf(text).digest for text in texts]
    digests.append(render(cluster({"config": {"gres.conf": "Name=gpu"}}), []).digest)
    assert len(set(digests)) == 4
    assert all(len(digest) == 64 for digest in digests)
    plain = render(cluster(), [])
    assert plain.files["seltzer.digest"] == plain.digest == with_conf("# nothing").digest


def test_a_restart_is_asked_for_by_the_keys_that_need_one() -> None:
    plain, other = with_conf(""), with_conf("CommunicationParameters=NoCtldInAddrAny\nEpilog=/a")
    assert restart_keys(plain.files, other.files) == ("CommunicationParameters",)
    assert plain.files["seltzer.restart"] != other.files["seltzer.restart"]
    reconfigured = with_conf("Epilog=/a\nMaxNodeCount=5\nSelectTypeParameters=CR_CPU")
    assert restart_keys(plain.files, reconfigured.files) == ()
    assert plain.files["seltzer.restart"] == reconfigured.files["seltzer.restart"]
    assert plain.digest != reconfigured.digest


@pytest.mark.parametrize("before", [{}, {"slurm.conf": ""}, {"slurm.conf": "can't be read"}])
def test_files_that_say_nothing_differ_from_a_configuration_in_all_that_it_says(before: dict[str, str]) -> None:
    said = dict(identity(cluster()))
    assert restart_keys(before, {}) == ()
    assert restart_keys(before, render(cluster(), []).files) == tuple(
        key for key in sorted(RESTART_KEYS) if key in said
    )


def deleted(one: NodeSet) -> NodeSet:
    return structs.replace(one, metadata=structs.replace(one.metadata, deletion_timestamp="2026-01-02T00:00:00Z"))


def test_a_partition_whose_nodesets_all_go_takes_no_new_jobs() -> None:
    mine = nodeset({"partition": {"name": "shared", "options": "State=UP"}})
    other = nodeset({"partition": {"name": "shared"}}, name="gpu", created="2026-01-02T00:00:00Z")
    assert "State=DRAIN" in partitions(render(cluster(), [deleted(mine)]))["shared"]
    assert "State=DRAIN" not in partitions(render(cluster(), [deleted(mine), other]))["shared"]
    assert "State=DRAIN" in partitions(render(cluster(), [deleted(mine), deleted(other)]))["shared"]


def test_the_default_is_a_partition_that_stays() -> None:
    young = nodeset(name="gpu", created="2026-01-02T00:00:00Z")
    found = partitions(render(cluster(), [deleted(nodeset()), young]))
    assert "Default=YES" in found["gpu"] and "Default=YES" not in found["cpu"]
