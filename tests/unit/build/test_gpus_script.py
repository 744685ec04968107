"""What a pod's start script finds of GPUs, and what slurmd is started with."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

SCRIPT = resources.files("seltzer.build").joinpath("gpus.sh").read_text()
HIDE = resources.files("seltzer.build").joinpath("hide_gpus.sh").read_text()
INFORMATION = "Model: \t\t {model}\nIRQ:   \t\t 55\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
# Stands in for slurmd -G, which fetches the configuration.
SLURMD = '#!/bin/sh\necho "GresTypes=gpu,shard" >"$CACHE/slurm.conf"\n'


class Pod:
    """A container: folders of its own instead of /dev, /proc, /run and slurmd's."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        for name in ("dev/dri", "gpus", "run", "cache"):
            (folder / name).mkdir(parents=True)
        self.slurmd(SLURMD)

    def slurmd(self, text: str) -> None:
        (self.folder / "slurmd").write_text(text)
        (self.folder / "slurmd").chmod(0o755)

    def scontrol(self, state: str) -> None:
        """A scontrol that shows the node in this state, and notes what it is told, line by line."""
        program = self.folder / "scontrol"
        program.write_text(f'#!/bin/sh\necho "$@" >>{self.folder}/told\necho "NodeName=gpu-0 State={state} X=1"\n')
        program.chmod(0o755)

    @property
    def told(self) -> list[str]:
        return (self.folder / "told").read_text().splitlines()

    def device(self, *names: str) -> None:
        for name in names:
            (self.folder / "dev" / name).symlink_to("/dev/null")

    def machine(self, *models: str, buses: str = "123456789") -> None:
        """The GPUs of the whole machine, as the driver lists them."""
        for minor, model in enumerate(models):
            bus = self.folder / "gpus" / f"0000:{buses[minor]}8:00.0"
            bus.mkdir()
            (bus / "information").write_text(INFORMATION.format(model=model, minor=minor))

    def start(
        self, resource: str = "nvidia.com/gpu", count: int | None = None, meanwhile: str = "true", **env: str
    ) -> tuple[str, list[str]]:
        """The arguments that slurmd gets after --conf, and the lines of its fake_gpus.conf.

        `meanwhile` is what happens while slurmd runs.
        """
        script = SCRIPT
        places = {"/dev/nvidia": "dev/nvidia", "/dev/dri": "dev/dri", "/run/seltzer": "run"}
        places |= {"/var/spool/slurmd/conf-cache": "cache", "/usr/sbin/slurmd": "slurmd", "/sys/class/drm": "sys"}
        for path, ours in places.items():
            script = script.replace(path, str(self.folder / ours))
        given = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "CACHE": str(self.folder / "cache"),
            "SELTZER_NVIDIA": str(self.folder / "gpus"),
            "SELTZER_GPU_RESOURCE": resource,
            "SELTZER_GPU_COUNT": "" if count is None else str(count),
            "SELTZER_GPU_CHECK": "infinity",
            "SELTZER_HOST": "127.0.0.1",
            "SELTZER_PORT": str(self.port),
            "POD_NAME": "gpu-0",
            **env,
        }
        words = [
            "bash",
            "-c",
            script,
            "seltzer",
            "sh",
            "-c",
            f'echo "last: $*"; {meanwhile}',
            "sh",
            "--conf",
            "CPUs=1 Feature=a",
            "-v",
        ]
        with (self.folder / "said").open("w") as said:
            # In a group of its own, since the watch goes on.
            process = subprocess.Popen(words, env=given, stdout=said, stderr=said, start_new_session=True)
            process.wait()
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
        self.said = (self.folder / "said").read_text()
        last = next(line for line in self.said.splitlines() if line.startswith("last: "))
        conf = (self.folder / "cache" / "fake_gpus.conf").read_text()
        return last.removeprefix("last: --conf ").removesuffix(" -v"), conf.replace(f"{self.folder}/", "/").splitlines()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Pod]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Pod(tmp_path, server.getsockname()[1])


def test_the_devices_of_the_pod_count_and_not_those_of_the_machine(here: Pod) -> None:
    here.machine("NVIDIA H200", "NVIDIA H200", "NVIDIA H200", "NVIDIA H200")
    here.device("nvidia1", "nvidia3", "nvidiactl")
    conf, gpus = here.start(count=2)
    assert conf == "CPUs=1 Feature=a Gres=gpu:nvidia_h200:2"
    assert gpus == [
        "nvidia_h200|1|(null)|-1,0|/dev/nvidia1|(null)|nvidia_gpu_env",
        "nvidia_h200|1|(null)|0,-1|/dev/nvidia3|(null)|nvidia_gpu_env",
    ]
    assert (here.folder / "run" / "gpus").read_text() == "CUDA_VISIBLE_DEVICES\n"


def test_gpus_are_in_the_order_of_their_addresses_as_cuda_counts_them(here: Pod) -> None:
    here.machine("NVIDIA H200", "NVIDIA H200", buses="21")
    here.device("nvidia0", "nvidia1")
    _, gpus = here.start(count=2)
    assert [line.split("|")[4] for line in gpus] == ["/dev/nvidia1", "/dev/nvidia0"]


def test_a_pod_without_a_gpu_on_a_machine_with_gpus_is_an_ordinary_node(here: Pod) -> None:
    here.machine("NVIDIA H200")
    assert here.start(resource="") == ("CPUs=1 Feature=a", [])
    assert not (here.folder / "run" / "gpus").exists(), "its tasks keep their variables"


def test_a_pod_with_fewer_gpus_registers_with_those_it_was_promised(here: Pod) -> None:
    """Slurm then refuses the node and says why."""
    here.machine("NVIDIA H200", "NVIDIA H200")
    here.device("nvidia0")
    conf, gpus = here.start(count=2)
    assert conf.endswith("Gres=gpu:nvidia_h200:2") and len(gpus) == 1
    assert "seltzer: 1 of 2 GPUs" in here.said


def test_a_pod_with_no_gpu_at_all_says_so_too(here: Pod) -> None:
    conf, gpus = here.start(count=2)
    assert conf.endswith("Gres=gpu:2") and not gpus
    assert "seltzer: 0 of 2 GPUs: none" in here.said


def test_a_pod_with_no_gpu_at_all_has_the_type_of_the_machine(here: Pod) -> None:
    """Its record keeps the type when another pod has its name."""
    here.machine("NVIDIA H200", "NVIDIA H200")
    conf, gpus = here.start(count=2)
    assert conf.endswith("Gres=gpu:nvidia_h200:2") and not gpus
    assert here.start(count=2, SELTZER_GPU_TYPE="H200")[0].endswith("Gres=gpu:H200:2")


def test_of_more_devices_than_promised_the_pod_gets_its_own(here: Pod) -> None:
    """A privileged container has all devices of the machine."""
    here.machine("NVIDIA H200", "NVIDIA H200", "NVIDIA H200")
    here.device("nvidia0", "nvidia1", "nvidia2")
    conf, gpus = here.start(count=1, NVIDIA_VISIBLE_DEVICES="GPU-2")
    assert conf.endswith("Gres=gpu:nvidia_h200:1")
    assert [line.split("|")[4] for line in gpus] == ["/dev/nvidia2"]
    _, gpus = here.start(count=2)
    assert len(gpus) == 2


@pytest.mark.parametrize(
    ("models", "count", "gres"),
    [
        (("NVIDIA A100", "NVIDIA H200"), 2, {"gpu:nvidia_a100:1", "gpu:nvidia_h200:1"}),
        (("NVIDIA A100-SXM4-80GB",), 1, {"gpu:nvidia_a100-sxm4-80gb:1"}),
        (("Tesla  V100, Inc. (x)",), 1, {"gpu:tesla_v100_inc._x:1"}),
    ],
)
def test_types_are_named_as_slurm_names_them(here: Pod, models: tuple[str, ...], count: int, gres: set[str]) -> None:
    here.machine(*models)
    here.device(*(f"nvidia{minor}" for minor in range(len(models))))
    conf, _ = here.start(count=count)
    assert set(conf.partition("Gres=")[2].split(",")) == gres


def test_gpus_that_the_driver_says_nothing_of_have_no_type(here: Pod) -> None:
    here.device("nvidia0", "nvidia1")
    conf, gpus = here.start(count=2)
    assert conf.endswith("Gres=gpu:2")
    assert gpus[0].startswith("(null)|1|")
    assert here.start(count=2, SELTZER_GPU_TYPE="H200")[0].endswith("Gres=gpu:H200:2")


def test_shards_are_those_of_all_gpus(here: Pod) -> None:
    here.device("nvidia0", "nvidia1")
    assert here.start(count=2, SELTZER_GPU_SHARING="shard 4")[0].endswith("Gres=gpu:2,shard:8")


def test_mig_instances_are_known_by_their_ids(here: Pod) -> None:
    here.machine("NVIDIA H200")
    here.device("nvidia0")
    conf, gpus = here.start("nvidia.com/mig-1g.18gb", 2, NVIDIA_VISIBLE_DEVICES="MIG-aa-1,MIG-bb-2")
    assert conf.endswith("Gres=gpu:nvidia_h200_1g.18gb:2")
    assert gpus == [
        "nvidia_h200_1g.18gb|1|(null)|-1,0|/run/mig0|MIG-aa-1|nvidia_gpu_env,env_uuid",
        "nvidia_h200_1g.18gb|1|(null)|0,-1|/run/mig1|MIG-bb-2|nvidia_gpu_env,env_uuid",
    ]
    assert (here.folder / "run" / "mig1").is_char_device()


def test_amd_gpus_are_render_devices(here: Pod) -> None:
    here.device("dri/renderD128", "dri/renderD129", "kfd")
    conf, gpus = here.start("amd.com/gpu", 2)
    assert conf.endswith("Gres=gpu:2")
    assert [line.split("|")[4:] for line in gpus] == [
        ["/dev/dri/renderD128", "(null)", "amd_gpu_env"],
        ["/dev/dri/renderD129", "(null)", "amd_gpu_env"],
    ]
    assert (here.folder / "run" / "gpus").read_text() == "ROCR_VISIBLE_DEVICES\n"


def test_claims_bring_what_they_bring(here: Pod) -> None:
    here.device("nvidia0", "nvidia1")
    assert here.start("")[0].endswith("Gres=gpu:2")
    assert here.start("", 3)[0].endswith("Gres=gpu:3"), "fewer than the NodeSet says"


def test_slurmd_waits_until_slurmctld_knows_gpus(here: Pod) -> None:
    """A node that registers before that has no GPUs for good."""
    here.device("nvidia0")
    here.slurmd('#!/bin/sh\n[ -e "$CACHE/asked" ] && echo GresTypes=gpu >"$CACHE/slurm.conf"; touch "$CACHE/asked"\n')
    assert here.start(count=1)[0].endswith("Gres=gpu:1")
    assert here.said.count("slurmd starts when slurmctld's configuration has GresTypes=gpu") == 1


@pytest.mark.parametrize(
    ("node", "env", "said"),
    [
        ("CUDA_VISIBLE_DEVICES", {}, "export CUDA_VISIBLE_DEVICES=\n"),
        ("CUDA_VISIBLE_DEVICES", {"CUDA_VISIBLE_DEVICES": "0,1"}, ""),
        ("ROCR_VISIBLE_DEVICES", {"CUDA_VISIBLE_DEVICES": "0"}, "export ROCR_VISIBLE_DEVICES=\n"),
        (None, {}, ""),
    ],
)
def test_a_task_without_gpus_of_its_own_sees_none(
    tmp_path: Path, node: str | None, env: dict[str, str], said: str
) -> None:
    if node:
        (tmp_path / "gpus").write_text(f"{node}\n")
    done = subprocess.run(
        ["sh", "-c", HIDE.replace("/run/seltzer", str(tmp_path))], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, said)


# Waits until scontrol was told so many lines with a word.
TOLD = "until [ $(grep -c {word} told 2>/dev/null || true) -ge {times} ] 2>/dev/null; do sleep 0.02; done"


def test_a_gpu_that_fails_twice_in_a_row_drains_the_node(here: Pod) -> None:
    here.device("nvidia0", "nvidia1")
    here.scontrol("IDLE+DYNAMIC_NORM")
    fails = f"cd {here.folder}; rm dev/nvidia1; {TOLD.format(word='update', times=1)}"
    here.start(count=2, meanwhile=fails, SELTZER_GPU_CHECK="0.01")
    (update, *_) = [line for line in here.told if line.startswith("update")]
    assert update == f"update NodeName=gpu-0 State=DRAIN Reason=GPU check: {here.folder}/dev/nvidia1 can't be opened"


def test_a_drain_that_is_there_stays_as_it_is(here: Pod) -> None:
    here.device("nvidia0")
    here.scontrol("MIXED+DRAIN+DYNAMIC_NORM")
    fails = f"cd {here.folder}; rm dev/nvidia0; {TOLD.format(word='show', times=3)}"
    here.start(count=1, meanwhile=fails, SELTZER_GPU_CHECK="0.01")
    assert not [line for line in here.told if line.startswith("update")]


def test_a_driver_that_does_not_answer_drains_the_node(here: Pod) -> None:
    here.device("nvidia0")
    here.scontrol("IDLE+DYNAMIC_NORM")
    driver = here.folder / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\n[ ! -e {here.folder}/broken ] || exit 15; echo >>{here.folder}/asked\n")
    driver.chmod(0o755)
    fails = f"cd {here.folder}; until [ -e asked ]; do sleep 0.02; done; touch broken; "
    here.start(count=1, meanwhile=fails + TOLD.format(word="update", times=1), SELTZER_GPU_CHECK="0.01")
    assert "update NodeName=gpu-0 State=DRAIN Reason=GPU check: nvidia-smi -L fails" in here.told


def test_a_driver_that_never_answered_says_nothing_about_the_gpus(here: Pod) -> None:
    """Its library may not be in the container."""
    here.device("nvidia0", "nvidia1")
    here.scontrol("IDLE+DYNAMIC_NORM")
    driver = here.folder / "nvidia-smi"
    driver.write_text("#!/bin/sh\nexit 12\n")
    driver.chmod(0o755)
    fails = f"cd {here.folder}; rm dev/nvidia1; {TOLD.format(word='update', times=1)}"
    here.start(count=2, meanwhile=fails, SELTZER_GPU_CHECK="0.01")
    assert not [line for line in here.told if "nvidia-smi" in line]
