"""The command line on the real thing: what a user types, what it prints, and how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness import Answer, Cluster, Sandbox, until

SPACE = "command-line"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    """A cluster made as the README says: with `seltzer create`."""
    cluster = Cluster(installed, SPACE, "demo")
    installed.kubectl("create", "namespace", SPACE)
    made = cluster.seltzer("create", "demo", "--wait")
    assert "SlurmCluster demo created\nNodeSet cpu created\n" in made.stdout
    assert "✓ wait until demo is ready" in made.stderr
    assert f"seltzer srun -n {SPACE} demo --nodes 2 hostname" in made.stdout
    yield cluster
    cluster.delete_later()


def typed(cluster: Cluster, line: str, stdin: str | None = None) -> Answer:
    """What a user types who has chosen the namespace with kubectl."""
    return cluster.sandbox.shell(line, stdin)


@pytest.fixture(autouse=True)
def chosen(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubeconfig whose namespace is the cluster's, so that -n isn't needed."""
    copy = tmp_path / "kubeconfig"
    copy.write_text(Path(cluster.sandbox.kubeconfig).read_text())
    monkeypatch.setattr(cluster.sandbox, "kubeconfig", str(copy))
    chosen = cluster.sandbox.shell(f"kubectl config set-context --current --namespace={SPACE}")
    assert chosen.code == 0, chosen.stderr


def printed(cluster: Cluster, line: str, stdin: str | None = None) -> str:
    """What a command that succeeds prints."""
    answer = typed(cluster, line, stdin)
    assert answer.code == 0, f"{line}: {answer.stderr}"
    return answer.stdout


def refused(cluster: Cluster, line: str, code: int = 1) -> str:
    """The one line that a command says which can't do what it was asked."""
    answer = typed(cluster, line)
    assert answer.code == code, f"{line}: {answer}"
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr


def versions(sandbox: Sandbox) -> dict[str, str]:
    """The version of all that `install` makes: its generation where it has one, since a status changes by itself."""
    kinds = "serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,services"
    found = sandbox.get(kinds, "--namespace", "seltzer-system")["items"]
    found += sandbox.get("crds,clusterroles,clusterrolebindings", "--field-selector=metadata.name!=x")["items"]
    found.append(sandbox.get("deployment", "seltzer-operator", "--namespace", "seltzer-system"))
    ours = [each["metadata"] for each in found if "seltzer" in each["metadata"]["name"]]
    assert len(ours) >= 10
    return {f"{each['name']} {each['uid']}": str(each.get("generation", each["resourceVersion"])) for each in ours}


def test_to_install_again_changes_nothing(cluster: Cluster) -> None:
    before = versions(cluster.sandbox)
    assert "Seltzer is installed" in printed(cluster, "seltzer install")
    assert versions(cluster.sandbox) == before
    assert printed(cluster, "seltzer upgrade --dry-run") == "nothing changes: this version is installed already\n"


def test_what_install_prints_kubectl_applies(cluster: Cluster) -> None:
    said = printed(cluster, "seltzer install --print | kubectl apply --dry-run=server -f -")
    assert "customresourcedefinition.apiextensions.k8s.io/slurmclusters.seltzer.dev configured" in said
    said = printed(cluster, "seltzer install --print | kubectl apply --dry-run=server --server-side -f -")
    assert "deployment.apps/seltzer-operator serverside-applied" in said, "no conflict, where nothing differs"
    assert printed(cluster, "seltzer install --print | kubectl create --dry-run=client -f - -o name").count("\n") >= 12


def test_what_create_prints_kubectl_applies(cluster: Cluster) -> None:
    said = printed(cluster, "seltzer create other --nodeset others --print | kubectl apply --dry-run=server -f -")
    assert said.startswith("slurmcluster.seltzer.dev/other created")
    assert "at most 40 lower-case letters" in refused(cluster, "seltzer create Demo_1")
    again = printed(cluster, "seltzer create demo")
    assert "SlurmCluster demo is already there and stays as it is" in again


def test_status_shows_a_healthy_cluster(cluster: Cluster) -> None:
    until("no job is left on a node", lambda: "cpu  2/2 ready  2 idle" in printed(cluster, "seltzer status demo"))
    shown = printed(cluster, "seltzer status demo")
    for words in ("demo  Ready  Slurm 26.", "slurmctld   ready", "config      valid"):
        assert words in shown
    assert "problems" not in shown
    assert "\x1b" not in shown, "no colours where nobody sees them"
    (data,) = json.loads(printed(cluster, "seltzer status -o json"))["clusters"]
    assert (data["name"], data["ready"], data["problems"]) == ("demo", True, [])
    assert data["nodeSets"][0]["readyReplicas"] == 2
    assert data["nodes"]["idle"] == 2


def test_status_of_what_is_not_there_helps(cluster: Cluster) -> None:
    assert "did you mean 'demo'?" in refused(cluster, "seltzer status dmo")
    # Other tests have clusters of this name too.
    elsewhere = refused(cluster, "seltzer status -n default demo")
    assert "in namespace 'default', but in " in elsewhere and SPACE in elsewhere and "add -n " in elsewhere


def test_status_ends_with_3_where_something_is_wrong(cluster: Cluster) -> None:
    printed(cluster, "seltzer drain cpu-1 --reason 'a broken fan'")
    try:
        answer = until("the problem is shown", lambda: problem(cluster))
        assert "cpu-1 is drained in Slurm (a broken fan [" in answer
        assert "]): resume it with 'seltzer resume' when it is well" in answer
        (data,) = json.loads(typed(cluster, "seltzer status demo -o json").stdout)["clusters"]
        assert [each["object"] for each in data["problems"]] == ["NodeSet cpu"]
    finally:
        printed(cluster, "seltzer resume cpu-1")
    cluster.wait_ready()


def problem(cluster: Cluster) -> str | None:
    answer = typed(cluster, "seltzer status demo")
    return answer.stdout if answer.code == 3 else None


def test_slurm_commands_take_words_input_and_exit_codes(cluster: Cluster) -> None:
    assert sorted(printed(cluster, "seltzer srun demo -N2 hostname").split()) == ["cpu-0", "cpu-1"]
    assert printed(cluster, "seltzer srun demo cat", stdin="from here\n") == "from here\n"
    assert printed(cluster, "seltzer srun demo sh -c 'id -un; echo \"$1\"' - 'two  words'") == "user\ntwo  words\n"
    assert typed(cluster, "seltzer srun demo sh -c 'exit 7'").code == 7
    assert printed(cluster, "seltzer sinfo demo --noheader --format=%P").strip() == "cpu*"
    assert "ClusterName=demo" in printed(cluster, "seltzer scontrol demo show config").replace(" ", "")
    assert printed(cluster, "seltzer scontrol --user root demo update NodeName=cpu-0 Comment=x") == ""
    assert "Slurm's options come after it" in refused(cluster, "seltzer srun --nodes=2 demo hostname", code=2)


def test_sbatch_sends_a_script_of_this_machine_along(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "my job.sh"
    script.write_text('#!/bin/sh\n#SBATCH --output=/dev/null\nsleep 600 # "$1"\n')
    job = printed(cluster, f"seltzer sbatch demo --parsable -n1 '{script}' argument").strip()
    assert cluster.job(job)["JobName"] == "my"
    piped = printed(cluster, "seltzer sbatch demo --parsable", stdin=script.read_text()).strip()
    listed = printed(cluster, "seltzer squeue demo --noheader --format=%i").split()
    assert {job, piped} <= set(listed)  # an srun of the test before may be COMPLETING
    assert "\tsleep" not in printed(cluster, f"seltzer scontrol demo write batch_script {job} -")
    printed(cluster, f"seltzer scancel demo {job} {piped}")
    until("both are gone", lambda: printed(cluster, "seltzer squeue demo --noheader") == "")
    assert "Unable to open file nowhere.sh" in typed(cluster, "seltzer sbatch demo nowhere.sh").stderr


def test_shell_runs_a_command_on_the_login_pod(cluster: Cluster) -> None:
    assert printed(cluster, "seltzer shell demo sh -c 'pwd; cat'", stdin="input\n") == "/home/user\ninput\n"
    assert printed(cluster, "seltzer shell demo", stdin="echo $0; exit\n").strip().endswith("bash")
    assert typed(cluster, "seltzer shell demo false").code == 1
    assert printed(cluster, "seltzer shell --user root demo id -u") == "0\n"
    assert "no such user" in typed(cluster, "seltzer shell --user nobody-here demo true").stderr


def test_scale_waits_until_it_is_so(cluster: Cluster) -> None:
    answer = typed(cluster, "seltzer scale cpu 3 --wait")
    assert (answer.code, answer.stdout) == (0, "cpu: 2 -> 3\n")
    assert "✓ wait for 3 nodes of cpu" in answer.stderr
    assert len(cluster.slurm_nodes()) == 3
    assert typed(cluster, "seltzer scale cpu 2 --wait").code == 0
    assert len(cluster.slurm_nodes()) == 2
    assert "there is no NodeSet 'gpu'" in refused(cluster, "seltzer scale gpu 2")
    assert "between 0 and 65536" in refused(cluster, "seltzer scale cpu -- -1")


def test_drain_and_resume_a_node(cluster: Cluster) -> None:
    said = printed(cluster, "seltzer drain 'cpu-[0-1]' --reason 'new disk'")
    assert said == "cpu-[0-1] of demo takes no new jobs (new disk); 'seltzer resume cpu-[0-1]' undoes it\n"
    assert cluster.slurm_node("cpu-0")["Reason"].startswith("new")
    assert "DRAIN" in cluster.slurm_node("cpu-1")["State"]
    assert printed(cluster, "seltzer resume 'cpu-[0-1]'") == "cpu-[0-1] of demo takes jobs again\n"
    assert "DRAIN" not in cluster.slurm_node("cpu-0")["State"]
    assert "there is nothing to resume" in refused(cluster, "seltzer resume cpu-0")
    assert "there is no node 'cpu-7'" in refused(cluster, "seltzer drain cpu-7")
    assert "is the operator's" in refused(cluster, "seltzer drain cpu-0 --reason 'seltzer: mine'")


def test_logs_and_events_tell_what_happened(cluster: Cluster) -> None:
    assert "slurmctld is ready with configuration" in printed(cluster, "seltzer logs demo --tail=-1")
    assert "slurmd started" in printed(cluster, "seltzer logs demo cpu-0 --tail=-1")
    assert "listening" in printed(cluster, "seltzer logs demo login --tail=-1")
    last = printed(cluster, "seltzer logs operator --tail=5").splitlines()
    assert all(json.loads(line)["message"] for line in last)
    assert "did you mean 'slurmctld'?" in refused(cluster, "seltzer logs demo slurmctl")
    happened = printed(cluster, "seltzer events demo")
    assert re.search(r"NodeSet/cpu +Created +created cpu-\[0-1\]", happened)
    assert "jobs can be submitted" in happened
    assert {each["type"] for each in json.loads(printed(cluster, "seltzer events demo -o json"))} <= {
        "Normal",
        "Warning",
    }


def test_version_tells_of_command_operator_and_slurm(cluster: Cluster) -> None:
    found = json.loads(printed(cluster, "seltzer version -o json"))
    assert found["operator"].endswith("(2 of 2 available)")
    assert found["slurm"][f"{SPACE}/demo"] == cluster.status()["slurmVersion"]
    assert "operator" in printed(cluster, "seltzer version")


def test_the_shells_complete_our_words(cluster: Cluster) -> None:
    ask = "source <(seltzer completion bash); complete -p seltzer"
    assert "seltzer" in printed(cluster, f"bash -c '{ask}'")
    for shell in ("zsh", "fish"):
        assert "sbatch" in printed(cluster, f"seltzer completion {shell}")


def test_it_is_a_plugin_of_kubectl_too(cluster: Cluster) -> None:
    assert printed(cluster, "kubectl slurm status demo").startswith("demo  Ready  Slurm")
    assert printed(cluster, "kubectl slurm srun demo hostname").startswith("cpu-")


def test_no_api_server_is_one_line(cluster: Cluster) -> None:
    nobody = "sed 's#https://127.0.0.1:[0-9]*#https://127.0.0.1:1#' $KUBECONFIG > $KUBECONFIG.away"
    printed(cluster, nobody)
    said = refused(cluster, "KUBECONFIG=$KUBECONFIG.away seltzer status")
    assert "see that the cluster is up, or choose another context with --context" in said
    assert "nowhere" in refused(cluster, "KUBECONFIG=/nowhere seltzer status")


def test_without_its_operator_a_cluster_goes_on(cluster: Cluster) -> None:
    """Last, since for a while nobody looks after anything."""
    assert "removing the kinds would delete" in refused(cluster, "seltzer uninstall --crds --yes")
    assert "answer y, or use --yes" in typed(cluster, "seltzer uninstall").stderr
    before = cluster.slurmctld()
    try:
        gone = typed(cluster, "seltzer uninstall --yes")
        assert gone.code == 0, gone.stderr
        assert f"these go on running, with nobody to look after them: SlurmCluster {SPACE}/demo" in gone.stderr
        assert "Deployment seltzer-operator" in gone.stdout
        assert printed(cluster, "seltzer srun demo -N2 hostname").count("cpu-") == 2
        assert cluster.slurmctld() == before
        assert "not installed in namespace seltzer-system; run 'seltzer install'" in printed(cluster, "seltzer version")
    finally:
        printed(cluster, "seltzer install")
    printed(cluster, "seltzer scale cpu 1 --wait")
    assert cluster.slurmctld() == before
