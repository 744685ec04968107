"""`seltzer top` and `seltzer nodes` in a real terminal: what somebody sees in front of it, and what keys do."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

SPACE = "top"
_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


class Terminal:
    """A terminal of a user who is logged in here: a window of tmux, on a server of its own."""

    def __init__(self, sandbox: Sandbox, width: int = 120, height: int = 40) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tmux-")
        self._words = ["tmux", "-S", f"{self._folder.name}/socket", "-f", "/dev/null"]
        self._env = {**sandbox.environment, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):  # a size here would count for more than the terminal's own
            self._env.pop(name, None)
        shell = "PS1='$ ' exec bash --norc --noprofile"
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), shell)
        until("there is a prompt", lambda: self.screen.startswith("$"))

    def _tmux(self, *words: str, check: bool = True) -> str:
        done = subprocess.run([*self._words, *words], env=self._env, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    @property
    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    @property
    def coloured(self) -> str:
        """The same, with what makes it colourful."""
        return self._tmux("capture-pane", "-p", "-e")

    def line(self, word: str) -> str:
        """The first line with that word in it."""
        return next((line for line in self.screen.splitlines() if word in line), "")

    def type(self, line: str) -> None:
        self._tmux("send-keys", "-l", line)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._tmux("send-keys", key)

    def sees(self, *words: str) -> None:
        """Wait for words on the screen."""
        self.until(f"{words} on the screen", lambda: all(word in self.screen for word in words))

    def until(self, what: str, ask: Callable[[], object]) -> None:
        """Wait for something; fail with what is on the screen."""
        try:
            until(what, lambda: bool(ask()))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.screen}") from None

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def asks(self, *formats: str) -> str:
        """What tmux knows of it."""
        return self._tmux("display-message", "-p", " ".join(f"#{{{each}}}" for each in formats)).strip()

    def close(self) -> None:
        self._tmux("kill-server", check=False)
        self._folder.cleanup()


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, SPACE, "demo")
    cluster.create(cpu={"replicas": 2})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


@pytest.fixture
def terminal(cluster: Cluster) -> Iterator[Terminal]:
    terminal = Terminal(cluster.sandbox)
    yield terminal
    terminal.close()
    cluster.run("scancel", "--user=user", user="root")


def node(cluster: Cluster, name: str) -> str:
    return cluster.slurm_node(name).get("State", "")


def left_behind(cluster: Cluster) -> str:
    """What still asks slurmctld in its own container."""
    return cluster.in_controller("sh", "-c", "ps ax -o args= | grep '[w]hile read' || true").stdout


def test_a_cluster_is_watched_and_kept_by_keys(cluster: Cluster, terminal: Terminal) -> None:
    terminal.type("echo this is before it\n")
    terminal.type(f"seltzer -n {SPACE} top demo; echo it ended with $?\n")
    terminal.sees("Nodes 2", "cpu-0", "cpu-1", "2 idle", "Ready", "Slurm 2", "0 running")
    assert "this is before it" not in terminal.screen

    # A job that starts is seen, where it is and on which node.
    job = cluster.hold("--nodelist=cpu-0", "--job-name=hold-on", "--time=30")
    terminal.sees("hold-on", "1 running")
    assert terminal.line("hold-on").split()[:3] == [job, "running", "user"]
    terminal.sees("1 mixed")
    assert re.search(rf"cpu-0 +(mixed|allocated) +{job} +in \d+m", terminal.line("cpu-0 "))

    # A drain by keys is a drain in Slurm, and is seen.
    terminal.press("d")
    terminal.sees("Why shall cpu-0 take no new jobs?")
    terminal.type("seltzer: by hand")
    terminal.press("Enter")
    terminal.sees("is the operator's")
    terminal.press("Escape")
    terminal.until("it is given up", lambda: "Why shall" not in terminal.screen)
    terminal.type("dthe fan is loud")
    terminal.press("Enter")
    terminal.until("it is drained", lambda: "DRAIN" in node(cluster, "cpu-0"))
    terminal.sees("draining", "the fan is loud", "1 idle")
    assert "the" in cluster.slurm_node("cpu-0")["Reason"]

    # What the key explains is what is so.
    terminal.press("e")
    terminal.sees("Esc closes it")
    terminal.press("Escape")
    terminal.until("it closes", lambda: "Esc closes it" not in terminal.screen)

    # Its slurmd has written about the job.
    terminal.press("l")
    terminal.sees("slurmd of cpu-0", f"JobId={job}")
    terminal.press("q")
    terminal.sees("Nodes 2")

    # On a small terminal there is less of it, and it still fits.
    terminal.resize(60, 20)
    terminal.until("it is smaller", lambda: "NAME" not in terminal.screen and "cpu-0" in terminal.screen)
    terminal.sees("Queue 1", "q quit")
    terminal.resize(120, 40)
    terminal.sees("NAME", "hold-on")

    terminal.press("r")
    terminal.until("it is resumed", lambda: "DRAIN" not in node(cluster, "cpu-0"))
    terminal.until("that is seen", lambda: "draining" not in terminal.screen)

    # A failover is survived and told.
    cluster.seltzer("failover", "demo")
    terminal.sees("1 failover ", "FailedOver", "hold-on")
    terminal.until("it is asked again", lambda: left_behind(cluster))

    # A job is cancelled, but not without being asked.
    terminal.press("Tab", "c")
    terminal.sees(f"Cancel job {job} of user (hold-on)?")
    terminal.press("y")
    cluster.wait_for_job(job, "CANCELLED")
    terminal.sees("0 running")

    # And it ends as if it had never been there.
    terminal.press("q")
    terminal.sees("it ended with 0", "this is before it")
    assert terminal.asks("alternate_on", "mouse_any_flag", "cursor_flag") == "0 0 1"
    terminal.type("stty -a\n")
    terminal.sees(" icanon", " echo ")
    assert "Traceback" not in terminal.screen
    terminal.until("nobody asks slurmctld any more", lambda: not left_behind(cluster))


def test_without_colours_there_are_none(cluster: Cluster, terminal: Terminal) -> None:
    terminal.type(f"seltzer -n {SPACE} top demo\n")
    terminal.sees("2 idle")
    assert _COLOUR.search(terminal.coloured)
    terminal.press("q")
    terminal.until("it ended", lambda: "2 idle" not in terminal.screen)
    terminal.type(f"NO_COLOR=1 seltzer -n {SPACE} top demo\n")
    terminal.sees("2 idle")
    assert not _COLOUR.search(terminal.coloured)


def test_ctrl_c_ends_it(cluster: Cluster, terminal: Terminal) -> None:
    terminal.type(f"seltzer -n {SPACE} top demo; echo it ended with $?\n")
    terminal.sees("2 idle")
    terminal.press("C-c")
    terminal.sees("it ended with 0")


def test_nodes_are_listed_as_wide_as_the_terminal_is(cluster: Cluster, terminal: Terminal) -> None:
    cluster.login("scontrol", "update", "nodename=cpu-1", "state=drain", "reason=the fan is loud", user="root")
    try:
        terminal.type(f"seltzer -n {SPACE} nodes demo\n")
        terminal.sees("NODE", "cpu-0", "cpu-1", "the fan is loud", "2 nodes")
        terminal.resize(60, 20)
        terminal.type("clear\n")
        until("it is clear", lambda: "2 nodes" not in terminal.screen)
        terminal.type(f"seltzer -n {SPACE} nodes demo\n")
        terminal.sees("cpu-0", "the fan is loud", "2 nodes")
        lines: list[Any] = [line for line in terminal.screen.splitlines() if line]
        assert [line.split()[0] for line in lines if line.startswith("cpu-")] == ["cpu-0", "cpu-1"]
    finally:
        cluster.login("scontrol", "update", "nodename=cpu-1", "state=resume", user="root")


def test_elsewhere_than_on_a_terminal_it_is_text(cluster: Cluster) -> None:
    refused = cluster.sandbox.shell(f"seltzer -n {SPACE} top demo | cat")
    assert refused.code == 2
    assert refused.stderr == "error: seltzer top needs a terminal; 'seltzer top demo --once' prints the same as text\n"
    once = cluster.seltzer("top", "demo", "--once").stdout
    assert "nodes 2" in once
    assert re.search(r"^cpu-0 +idle", once, re.MULTILINE)
    assert "\x1b" not in once


def test_a_cluster_that_is_not_there_is_reported_before_the_screen_is_taken(
    cluster: Cluster, terminal: Terminal
) -> None:
    terminal.type(f"seltzer -n {SPACE} top demmo; echo it ended with $?\n")
    terminal.sees("there is no SlurmCluster 'demmo' in namespace 'top'; did you mean 'demo'?", "it ended with 1")
