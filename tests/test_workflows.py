"""The hosted workflows are well-formed, call the scripts of .ci/, and name no more than they need."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = sorted((ROOT / ".ci").iterdir())


def load(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text())
    return found


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def test_there_are_workflows_for_checks_for_a_cluster_and_for_releases() -> None:
    assert {path.stem for path in WORKFLOWS} == {"checks", "cluster", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_no_more_than_it_needs_and_ends(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
            continue
        assert job["timeout-minutes"] <= 180
        assert job["runs-on"] == "ubuntu-24.04", "a name that moves by itself breaks by itself"
        assert set(job.get("permissions", {})) <= {"contents", "id-token"}
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step)
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
        # What a pull request may write must not become a line of shell.
        assert not re.search(r"\$\{\{", step.get("run", ""))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_runs_is_here(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for step in steps(load(path)):
        for script in re.findall(r"\.ci/\w+", step.get("run", "")):
            assert ROOT / script in SCRIPTS
        for target in re.findall(r"^make ([a-z-]+)", step.get("run", "")):
            assert target in targets


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_shell_that_can_be_run(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    text = script.read_text()
    assert text.startswith("#!/bin/bash\n#"), "and says what it does"
    assert "set -euo pipefail" in text
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=30)
    for file in re.findall(r"(?:-f |--config )([\w./-]+\.yaml|Dockerfile\.\w+)", text):
        assert (ROOT / file).exists()


def test_checks_cover_the_pythons_that_are_admitted() -> None:
    """The lists are for one Python, and say so; newer ones are tried with what the indexes have."""
    jobs = load(ROOT / ".github" / "workflows" / "checks.yml")["jobs"]
    assert jobs["everything"]["container"].startswith("python:3.11.")
    assert [step["run"] for step in jobs["everything"]["steps"] if "run" in step][-2:] == [".ci/run", ".ci/docs"]
    assert jobs["library"]["strategy"]["matrix"]["python"] == ["3.12", "3.13"]
    for name in (ROOT / "requirements").glob("*.txt"):
        assert "Python 3.11" in name.read_text().splitlines()[0], name


def test_a_release_signs_what_it_publishes_and_refuses_a_tag_that_is_not_the_charts(tmp_path: Path) -> None:
    release = load(ROOT / ".github" / "workflows" / "release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    assert release["jobs"]["publish"]["needs"] == "checks"
    assert release["jobs"]["publish"]["permissions"]["id-token"] == "write"
    done = subprocess.run(
        [str(ROOT / ".ci" / "publish"), "9.9.9"],
        env={"PATH": "/usr/bin:/bin", "REGISTRY": "host/owner", "PYTORCH_CPU_INDEX": "https://index"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "tag v9.9.9, but helm/rollcast/Chart.yaml says version" in done.stderr


def test_a_release_builds_every_image_signs_each_by_digest_and_packs_the_licence(tmp_path: Path) -> None:
    """With programs in the place of docker, helm and cosign that write down how they are called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "log"
    metadata = '{"containerimage.digest": "sha256:0123"}'
    tell = f'[ "$1" = --metadata-file ] && echo \'{metadata}\' > "$2"'
    write_program(programs / "docker", f'echo "docker $*" >> {log}; while [ $# -gt 0 ]; do {tell}; shift; done')
    write_program(programs / "cosign", f'echo "cosign $*" >> {log}')
    write_program(
        programs / "helm",
        f'echo "helm $*" >> {log}; [ -f "$2/LICENSE" ] && echo licence >> {log}; echo "Digest: sha256:45ab"',
    )
    version = yaml.safe_load((ROOT / "helm" / "rollcast" / "Chart.yaml").read_text())["version"]
    subprocess.run(
        [str(ROOT / ".ci" / "publish"), version],
        env={"PATH": f"{programs}:/usr/bin:/bin", "REGISTRY": "host/owner", "PYTORCH_CPU_INDEX": "https://index"},
        check=True,
        timeout=30,
        stdout=subprocess.DEVNULL,
    )
    said = log.read_text().splitlines()
    built = [line for line in said if line.startswith("docker buildx build")]
    tags = [re.search(r"--tag (\S+)", line)[1] for line in built]  # type: ignore[index]
    assert tags == [
        f"host/owner/rollcast/{image}:{version}{device}"
        for image, device in (
            ("control", ""),
            ("trainer", "-cpu"),
            ("generator", "-cpu"),
            ("trainer", ""),
            ("generator", ""),
        )
    ]
    assert all("--sbom=true --provenance=mode=max" in line for line in built)
    signed = [line.rpartition(" ")[2] for line in said if line.startswith("cosign sign")]
    assert signed == [
        *(f"host/owner/rollcast/{tag.rpartition('/')[2].partition(':')[0]}@sha256:0123" for tag in tags),
        "host/owner/charts/rollcast@sha256:45ab",
    ]
    assert "licence" in said


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing() -> None:
    subprocess.run(["actionlint", *map(str, WORKFLOWS)], check=True, timeout=60, cwd=ROOT)


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/bash\n{line}\nexit 0\n")
    path.chmod(0o755)
