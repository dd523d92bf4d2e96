"""What docs/kubernetes.md has people type does what it says: in both shells, in the order that a
cluster needs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from testkit.plain_manifests import manifests
from tests.documents.documented import ROOT

GUIDE = (ROOT / "docs" / "kubernetes.md").read_text()
INDEX = "index of CPU builds, with spaces"


def blocks() -> list[str]:
    """Commands of the page, as they are pasted: lines of four spaces and more that follow one
    another.
    """
    found: list[list[str]] = [[]]
    for line in GUIDE.splitlines():
        if re.match(r"    +\S", line):
            found[-1].append(line.strip())
        elif found[-1]:
            found.append([])
    return ["\n".join(block) for block in found if block]


def with_arrays() -> str:
    (block,) = [block for block in blocks() if re.search(r"^\w+=\(", block, re.MULTILINE)]
    return block


def test_only_one_block_needs_arrays_and_no_other_splits_words() -> None:
    """zsh does not split what an unquoted variable holds."""
    assert with_arrays().count('"${cpu[@]}"') == 2
    for block in blocks():
        assert not re.search(r"(?<![\"'\w{=/])\$\w+(?![\w\"'])", block), (
            f"an expansion without quotes: {block}"
        )


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_arrays_give_the_same_arguments_in_bash_and_zsh(shell: str, tmp_path: Path) -> None:
    """The guide's block as it stands, pasted into the shell; a program in docker's place writes its
    arguments down.
    """
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed: the guide's block is not run in it")
    for name in ("docker", "kind"):
        path = tmp_path / name
        path.write_text('#!/bin/sh\nfor word in "$@"; do printf "<%s>" "$word"; done\necho\n')
        path.chmod(0o755)
    quiet = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"]}[shell]
    done = subprocess.run(
        [program, *quiet, "-c", with_arrays()],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTORCH_CPU_INDEX": INDEX},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stderr == ""
    control, trainer, generator, load = done.stdout.splitlines()
    cpu = f"<--build-arg><DEVICE=cpu><--build-arg><EXTRA_INDEX_URL={INDEX}>"
    assert control == "<build><-f><Dockerfile.control><-t><rollcast/control:0.2.0><.>"
    assert trainer == f"<build><-f><Dockerfile.trainer><-t><rollcast/trainer:0.2.0-cpu>{cpu}<.>"
    assert (
        generator == f"<build><-f><Dockerfile.generator><-t><rollcast/generator:0.2.0-cpu>{cpu}<.>"
    )
    assert load.startswith("<load><docker-image><--name><rollcast>")


def test_the_job_goes_before_an_overlay_that_changes_what_a_job_cannot() -> None:
    """Its name stays, its image changes: the API server refuses that,
    after all else was changed.
    """
    (block,) = [block for block in blocks() if "apply -k k8s/overlays/own-registry" in block]
    delete, apply = block.splitlines()
    namespace, selector = re.fullmatch(
        (
            r"kubectl -n (\S+) delete job -l "
            r"(\S+)"
        ),
        delete,
    ).groups()  # type: ignore[union-attr]
    assert apply == "kubectl apply -k k8s/overlays/own-registry"
    overlay = yaml.safe_load(
        (ROOT / "k8s" / "overlays" / "own-registry" / "kustomization.yaml").read_text()
    )
    assert overlay["resources"] == ["../../cpu"]
    assert not set(overlay) & {"namePrefix", "nameSuffix", "patches"}, "the Job's name stays"
    renamed = {image["name"] for image in overlay["images"] if "newName" in image}
    pytest.importorskip(
        "helm_python.chart", reason="helm-python-sdk is not installed: no chart is rendered"
    )
    (job,) = [item for item in manifests("cpu") if item["kind"] == "Job"]
    images = {
        container["image"].rpartition(":")[0]
        for container in job["spec"]["template"]["spec"]["containers"]
    }
    assert images & renamed, "what makes it necessary"
    wanted = dict(pair.split("=") for pair in selector.split(","))
    assert wanted.items() <= job["metadata"]["labels"].items()
    assert job["metadata"]["namespace"] == namespace
