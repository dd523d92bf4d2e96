"""The hosted workflows are well-formed, call the scripts of .ci/,
and name no more than they need.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

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
    assert [step["run"] for step in jobs["everything"]["steps"] if "run" in step][-2:] == [
        ".ci/run",
        ".ci/docs",
    ]
    assert jobs["library"]["strategy"]["matrix"]["python"] == ["3.12", "3.13"]
    for name in (ROOT / "requirements").glob("*.txt"):
        assert "Python 3.11" in name.read_text().splitlines()[0], name


def test_a_release_signs_what_it_publishes_and_refuses_a_tag_that_is_not_the_charts(
    tmp_path: Path,
) -> None:
    release = load(ROOT / ".github" / "workflows" / "release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    assert release["jobs"]["publish"]["needs"] == "checks"
    assert release["jobs"]["publish"]["permissions"]["id-token"] == "write"
    done = subprocess.run(
        [str(ROOT / ".ci" / "publish"), "9.9.9"],
        env={
            "PATH": "/usr/bin:/bin",
            "REGISTRY": "host/owner",
            "PYTORCH_CPU_INDEX": "https://index",
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "tag v9.9.9, but helm/rollcast/Chart.yaml says version" in done.stderr


def publish(folder: Path, **environment: str) -> tuple[str, list[str], dict[str, Any]]:
    """With programs in the place of docker, helm and cosign that write down how they are called.

    The chart's version, what was called, and the Chart.yaml that was packed; the whole chart is in
    `folder`/chart.
    """
    programs = folder / "bin"
    programs.mkdir(parents=True)
    log = folder / "log"
    metadata = '{"containerimage.digest": "sha256:0123"}'
    tell = f'[ "$1" = --metadata-file ] && echo \'{metadata}\' > "$2"'
    write_program(
        programs / "docker",
        f'echo "docker $*" >> {log}; while [ $# -gt 0 ]; do {tell}; shift; done',
    )
    write_program(programs / "cosign", f'echo "cosign $*" >> {log}')
    write_program(
        programs / "helm",
        f'echo "helm $*" >> {log}; [ -f "$2/LICENSE" ] && echo licence >> {log} && cp -r "$2" '
        f"{folder}/chart; "
        'echo "Digest: sha256:45ab"',
    )
    version = yaml.safe_load((ROOT / "helm" / "rollcast" / "Chart.yaml").read_text())["version"]
    subprocess.run(
        [str(ROOT / ".ci" / "publish"), version],
        env={
            "PATH": f"{programs}:/usr/bin:/bin",
            "REGISTRY": "host/owner",
            "PYTORCH_CPU_INDEX": "https://index",
        }
        | environment,
        check=True,
        timeout=30,
        stdout=subprocess.DEVNULL,
    )
    return version, log.read_text().splitlines(), load(folder / "chart" / "Chart.yaml")


def test_a_release_builds_every_image_signs_each_by_digest_and_packs_the_licence(
    tmp_path: Path,
) -> None:
    version, said, _ = publish(tmp_path)
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
        *(
            f"host/owner/rollcast/{tag.rpartition('/')[2].partition(':')[0]}@sha256:0123"
            for tag in tags
        ),
        "host/owner/charts/rollcast@sha256:45ab",
    ]
    assert "licence" in said


def test_the_clusters_images_are_built_loaded_and_removed_one_after_the_other(
    tmp_path: Path,
) -> None:
    """The disk of a hosted machine would not hold all of them twice."""
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "log"
    for name in ("docker", "kind", "helm", "df"):
        write_program(programs / name, f'echo "{name} $*" >> {log}')
    subprocess.run(
        [str(ROOT / ".ci" / "kind")],
        env={
            "PATH": f"{programs}:/usr/bin:/bin",
            "PIP_EXTRA_INDEX_URL": "https://index",
            "SECOND_TAG": "again",
        },
        check=True,
        timeout=30,
    )
    said = [line for line in log.read_text().splitlines() if not line.startswith("df")]
    assert said[0].startswith("kind create cluster")
    for place, image in enumerate(("control", "trainer", "generator")):
        built, loaded, removed, pruned = said[1 + 4 * place : 5 + 4 * place]
        assert built.startswith(f"docker build -f Dockerfile.{image} ")
        tags = re.findall(r"--tag=(\S+)", built)
        assert tags[1:] == ([] if image == "control" else [f"rollcast/{image}:again"])
        assert loaded == f"kind load docker-image --name rollcast {' '.join(tags)}"
        assert removed == f"docker rmi --force {' '.join(tags)}"
        assert pruned.startswith("docker builder prune --all")
    workflow = (ROOT / ".github" / "workflows" / "cluster.yml").read_text()
    installed = {line.split()[2]: line for line in said if line.startswith("helm install")}
    assert set(installed) == {"monitoring", "keda", "jobset", "kueue"}
    for service in re.findall(r"(?:PROMETHEUS|GRAFANA): (\w+)/", workflow):
        assert f" -n {service} " in installed["monitoring"]


def test_the_packed_chart_says_where_it_comes_from_as_far_as_that_is_known(tmp_path: Path) -> None:
    """Helm takes it, and finds nothing to complain of."""
    helm = pytest.importorskip(
        "helm_python.chart", reason="helm-python-sdk is not installed: no chart is read"
    )
    workflow = {
        "GITHUB_SERVER_URL": "https://forge.example",
        "GITHUB_REPOSITORY": "somebody/rollcast",
    }
    version, _, packed = publish(tmp_path / "hosted", **workflow)
    address = "https://forge.example/somebody/rollcast"
    assert packed["home"] == address
    assert packed["sources"] == [f"{address}/tree/v{version}"]
    chart = shutil.copytree(ROOT / "helm" / "rollcast", tmp_path / "rollcast")
    shutil.copy(tmp_path / "hosted" / "chart" / "Chart.yaml", chart)
    metadata = helm.Chart.load(chart).metadata
    assert {key: metadata[key] for key in ("home", "sources")} == {
        key: packed[key] for key in ("home", "sources")
    }
    assert helm.lint(chart, strict=True)["messages"] == []
    _, _, by_hand = publish(tmp_path / "by-hand")
    assert by_hand == load(ROOT / "helm" / "rollcast" / "Chart.yaml")


def test_the_packed_chart_names_the_images_that_were_pushed(tmp_path: Path) -> None:
    """Who installs a release builds none."""
    from tests.chart.rendering import (
        CPU,
        merged,
        pods,
        render,
    )  # skips where no chart can be rendered

    _, said, _ = publish(tmp_path)
    pushed = {
        found[1]
        for line in said
        if (found := re.search(r"docker buildx build .*--tag (\S+)", line))
    }
    every_role = {"grader": {"enabled": True}, "autoscaler": {"mode": "hpa"}}
    rendered = [
        render(merged(profile, every_role), path=tmp_path / "chart") for profile in ({}, CPU)
    ]
    named = {
        container["image"]
        for objects in rendered
        for pod in pods(objects)
        for container in pod.containers
    }
    theirs = {image for image in named if "/rollcast/" not in image}
    assert named - theirs == pushed
    assert [image.partition(":")[0] for image in theirs] == ["docker.io/library/redis"]


def test_the_charts_icon_is_a_picture() -> None:
    kind, _, data = load(ROOT / "helm" / "rollcast" / "Chart.yaml")["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    picture = ElementTree.fromstring(base64.b64decode(data, validate=True))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(picture)) > 1


ZIZMOR = Path(sys.executable).parent / "zizmor"
NEEDS_ZIZMOR = pytest.mark.skipif(
    not ZIZMOR.exists(), reason="zizmor is not installed: `make setup` does"
)


def complaints(folder: Path) -> subprocess.CompletedProcess[str]:
    """What zizmor says of the workflows there, without asking anybody."""
    command = [
        str(ZIZMOR),
        "--offline",
        "--no-progress",
        "--strict-collection",
        "--min-severity=medium",
        str(folder),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@NEEDS_ZIZMOR
def test_zizmor_finds_nothing_in_the_workflows() -> None:
    found = complaints(ROOT / ".github")
    assert found.returncode == 0, found.stdout + found.stderr


@NEEDS_ZIZMOR
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("run: .ci/run", 'run: .ci/run "${{ github.head_ref }}"'),
        ("with: {persist-credentials: false}", "with: {fetch-depth: 0}"),
        ("contents: read", "contents: reed"),
    ],
)
def test_zizmor_finds_what_is_wrong(right: str, wrong: str, tmp_path: Path) -> None:
    copied = shutil.copytree(ROOT / ".github", tmp_path / ".github")
    checks = copied / "workflows" / "checks.yml"
    text = checks.read_text()
    assert right in text
    checks.write_text(text.replace(right, wrong, 1))
    assert complaints(copied).returncode != 0


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/bash\n{line}\nexit 0\n")
    path.chmod(0o755)
