"""The Dockerfiles by hadolint's rules that matter, and the lists of what they install; no engine
builds images here.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
IMAGES = ("control", "trainer", "generator")
VALUES = yaml.safe_load((ROOT / "helm" / "rollcast" / "values.yaml").read_text())


@dataclass(frozen=True)
class Instruction:
    word: str
    text: str
    stage: int


def instructions(image: str) -> list[Instruction]:
    """Continued lines joined, comments left out."""
    found: list[Instruction] = []
    waiting = ""
    stage = -1
    for line in (ROOT / f"Dockerfile.{image}").read_text().splitlines():
        if line.lstrip().startswith("#") or (not line.strip() and not waiting):
            continue
        waiting += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        word, _, text = waiting.strip().partition(" ")
        assert word.isupper(), f"DL1000: {waiting}"
        stage += word == "FROM"
        found.append(Instruction(word, " ".join(text.split()), stage))
        waiting = ""
    return found


def of(image: str, *words: str) -> list[Instruction]:
    return [instruction for instruction in instructions(image) if instruction.word in words]


@pytest.mark.parametrize("image", IMAGES)
class TestDockerfile:
    def test_bases_are_pinned_and_stages_named(self, image: str) -> None:
        """DL3006, DL3007, DL3022, DL3023, DL3024."""
        arguments = dict(
            item.text.replace('"', "").split("=", 1)
            for item in of(image, "ARG")
            if item.stage == -1
        )
        assert re.fullmatch(r"\d+\.\d+\.\d+-slim-[a-z]+", arguments["PYTHON"])
        assert arguments["PYTHON_DIGEST"] == ""
        stages = [item.text for item in of(image, "FROM")]
        assert all(
            text.startswith("python:${PYTHON}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}")
            for text in stages
        )
        names = [text.split(" AS ")[1] for text in stages if " AS " in text]
        assert len(names) == len(set(names)) == len(stages) - 1 >= 2
        for item in of(image, "COPY"):
            source = re.search(r"--from=(\S+)", item.text)
            assert source is None or names.index(source[1]) < item.stage

    def test_the_image_runs_as_nobody_in_particular(self, image: str) -> None:
        """DL3002, DL3004, and numeric ids, which Kubernetes needs to believe runAsNonRoot."""
        users = of(image, "USER")
        assert [item.text for item in users] == ["1000:1000"]
        last = instructions(image)[-1].stage
        assert users[0].stage == last
        after = [item for item in instructions(image) if item.stage == last]
        assert all(item.word not in ("RUN", "COPY") for item in after[after.index(users[0]) :])
        assert not any(
            re.search(r"\b(sudo|su|chmod 777)\b", item.text) for item in of(image, "RUN")
        )

    def test_it_starts_without_a_shell_and_says_how_it_is(self, image: str) -> None:
        """DL3025, DL4003, DL4004, DL3012; the entry point passes signals on."""
        last = instructions(image)[-1].stage
        for word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
            (item,) = of(image, word)
            assert item.stage == last
            command = item.text.partition("CMD ")[2] if word == "HEALTHCHECK" else item.text
            assert isinstance(yaml.safe_load(command), list)
        (health,) = of(image, "HEALTHCHECK")
        compile(yaml.safe_load(health.text.partition("CMD ")[2])[2], "healthcheck", "exec")

    def test_packages_are_installed_tidily(self, image: str) -> None:
        """DL3009, DL3013, DL3014, DL3015, DL3042, DL3003, DL3020, DL3027, DL3059, DL4006."""
        assert of(image, "ADD", "MAINTAINER") == []
        for item in of(image, "RUN"):
            if "apt-get" in item.text:
                assert "apt-get update &&" in item.text
                assert "--yes --no-install-recommends" in item.text
                assert "rm -rf /var/lib/apt/lists/*" in item.text
            for command in re.findall(r"pip (?:install|wheel) [^&]*", item.text):
                assert "--no-cache-dir" in command
                assert (
                    "-r " in command or "/wheel/*.whl" in command or command.rstrip().endswith(".")
                ), command
            assert not re.search(r"(^|&& )cd |\bapt |curl |wget ", item.text)
            assert "|" not in item.text.replace("||", "")
        for item in of(image, "WORKDIR"):
            assert item.text.startswith("/")

    def test_nothing_secret_is_baked_in(self, image: str) -> None:
        for item in of(image, "ARG", "ENV", "LABEL"):
            assert not re.search(r"(?i)token|password|secret|apikey", item.text)

    def test_what_is_copied_exists_and_is_sent_to_the_builder(self, image: str) -> None:
        ignore = [
            line
            for line in (ROOT / ".dockerignore").read_text().splitlines()
            if line and not line.startswith("#")
        ]
        assert ignore[0] == "*"
        sent = [line[1:] for line in ignore if line.startswith("!")]
        for item in of(image, "COPY"):
            if "--from=" in item.text:
                continue
            for source in item.text.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == top or source.startswith(f"{top}/") for top in sent), source
                assert not any(
                    fnmatch.fnmatch(source, line) for line in ignore[1:] if not line.startswith("!")
                )

    def test_ports_and_commands_are_those_of_the_chart(self, image: str) -> None:
        (exposed,) = of(image, "EXPOSE")
        ports = {
            "control": "7432 8400 8401 8402 8404",
            "trainer": "8080 7431 29500",
            "generator": "8080",
        }
        assert exposed.text == ports[image]
        roles = ("forecaster", "autoscaler", "grader") if image == "control" else (image,)
        assert {VALUES[role]["image"]["repository"] for role in roles} == {f"rollcast/{image}"}


SERVED = {
    "control": {
        "rollcast.forecaster.service",
        "rollcast.autoscaler.service",
        "rollcast.autoscaler.old_trainers",
        "rollcast.grader.service",
        "rollcast.cli.main",
        "rollcast.local.sweep.loop",
        "rollcast.local.sweep.cluster_runs",
    },
    "trainer": {"rollcast.trainer.service", "rollcast.trainer.launch"},
    "generator": {"rollcast.generator.service", "vllm"},
}


@pytest.mark.parametrize("image", IMAGES)
def test_every_build_ends_with_an_import_of_what_the_image_serves(image: str) -> None:
    """In the last stage: what the system lacks shows there alone."""
    last = instructions(image)[-1].stage
    program = [item.text for item in of(image, "RUN") if item.stage == last][-1]
    found = re.fullmatch(r'/opt/rollcast/bin/python -c "import ([\w., ]+)"', program)
    assert found
    assert set(found[1].split(", ")) >= SERVED[image]


@pytest.mark.parametrize("image", ["trainer", "generator"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_build_that_finds_the_other_devices_torch_ends_in_a_sentence(
    image: str, device: str, tmp_path: Path
) -> None:
    """The step itself, with a torch that says what it is built for, or that cannot load."""
    (step,) = [item.text for item in of(image, "RUN") if "torch.version.cuda" in item.text]
    folder = tmp_path / "torch"
    folder.mkdir()
    for source, right in {
        "from types import SimpleNamespace\nversion = SimpleNamespace(cuda='13.0')": device
        == "cuda",
        "from types import SimpleNamespace\nversion = SimpleNamespace(cuda=None)": device == "cpu",
        "raise OSError('libcublasLt.so.13')": False,
    }.items():
        (folder / "__init__.py").write_text(source)
        done = subprocess.run(
            ["/bin/sh", "-c", step.replace("/opt/rollcast/bin/python", f"{sys.executable} -B")],
            env={"DEVICE": device, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode == 0) is right
        assert (
            f"DEVICE={device}, but the torch that was found is not its build" in done.stderr
        ) is not right


def test_the_lists_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "requirements" / "closure.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_trainer_reads_every_kind_of_data_set(device: str) -> None:
    """Parquet files and sets of the hub need libraries that are imported only then."""
    lines = (ROOT / "requirements" / f"trainer-{device}.txt").read_text().splitlines()
    assert {"datasets", "pyarrow"} <= {line.partition("==")[0] for line in lines}
