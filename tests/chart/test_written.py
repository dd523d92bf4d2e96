"""What scripts have written is what they would write now; manifests, overlays and prerequisites fit
the chart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.run import parse_run_config
from testkit.plain_manifests import PROFILES, manifest_texts, manifests
from tests.chart.rendering import (
    CHART,
    ROOT,
    defaults,
    merged,
    of_kind,
    one,
    pods,
    profile,
    render,
    run_file,
)
from tests.chart.rendering import PROFILES as PROFILES_OF_THE_CHART
from tests.chart.value_sets import VALUE_SETS

K8S = ROOT / "k8s"
CUSTOM = ("monitoring.coreos.com/v1",)
"""No schema of Kubernetes has these; test_matrix.py checks them."""


@pytest.mark.parametrize("script", ["values_schema", "readme", "recipes"])
def test_nothing_is_out_of_date(script: str) -> None:
    """`make chart` mends it."""
    checked = subprocess.run(
        [sys.executable, str(ROOT / "helm" / f"{script}.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "services")},
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_table_describes_every_group_of_values() -> None:
    table = (CHART / "README.md").read_text()
    values = defaults()
    assert all(f"| `{name}" in table for name in values)


@pytest.mark.parametrize(
    "recipe", sorted((ROOT / "helm" / "recipes").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_recipe_renders_after_a_profile_and_is_the_recipe(recipe: Path) -> None:
    values = yaml.safe_load(recipe.read_text())
    config = parse_run_config(
        run_file(render(merged(profile("scalerl-8b"), values))), source=recipe.stem
    )
    (source,) = (ROOT / "configs" / "recipes").rglob(recipe.name)
    wanted = parse_run_config(yaml.safe_load(source.read_text()), source=recipe.stem)
    assert config.recipe == wanted.recipe
    assert config.run == wanted.run


@pytest.fixture(scope="module")
def k8s(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """k8s/ as a release packs it: with the rendered chart."""
    folder = tmp_path_factory.mktemp("release")
    subprocess.run(
        [str(ROOT / ".ci" / "manifests"), "0.0.0-test"],
        env=os.environ | {"PYTHON": sys.executable, "DIST": str(folder), "GITHUB_REPOSITORY": ""},
        check=True,
        timeout=120,
    )
    with tarfile.open(folder / "rollcast-manifests-0.0.0-test.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "k8s"


def test_no_rendered_manifest_is_committed_and_a_release_packs_all(k8s: Path) -> None:
    assert "/k8s/*/rollcast.yaml" in (ROOT / ".gitignore").read_text().splitlines()
    for name in PROFILES:
        assert (k8s / name / "rollcast.yaml").read_text() == manifest_texts()[name]
    for path in K8S.rglob("*.yaml"):
        assert (k8s / path.relative_to(K8S)).exists()


@pytest.mark.parametrize("version", ["1.28", "1.37"])
@pytest.mark.parametrize("name", PROFILES)
def test_kubernetes_accepts_the_plain_manifests(name: str, version: str) -> None:
    schemas = pytest.importorskip("tests.chart.kubernetes_schemas")
    for item in manifests(name):
        if item["apiVersion"] not in CUSTOM:
            schemas.check(item, version)


@pytest.mark.parametrize("name", PROFILES)
def test_plain_manifests_hold_no_secret_and_no_helm(name: str) -> None:
    objects = manifests(name)
    assert of_kind(objects, "Secret") == []
    assert "helm.sh" not in manifest_texts()[name]
    names = {
        entry["valueFrom"]["secretKeyRef"]["name"]
        for pod in pods(objects)
        for container in pod.containers
        for entry in container.get("env", [])
        if "secretKeyRef" in entry.get("valueFrom", {})
    }
    assert names == {"rollcast-auth"}
    guide = (ROOT / "docs" / "kubernetes.md").read_text()
    assert "create secret generic rollcast-auth" in guide
    assert {item["metadata"].get("namespace", "rollcast") for item in objects} == {"rollcast"}


def _built(folder: Path) -> list[dict[str, Any]]:
    """Every object that a kustomization takes in, before its changes."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    objects = []
    for resource in kustomization["resources"]:
        path = folder / resource
        found = (
            _built(path)
            if path.is_dir()
            else yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
        )
        objects += [item for item in found if item]
    return objects


@pytest.mark.parametrize("folder", [*PROFILES, "overlays/own-registry", "overlays/two-generators"])
def test_kustomizations_change_what_is_there(folder: str, k8s: Path) -> None:
    kustomization = yaml.safe_load((k8s / folder / "kustomization.yaml").read_text())
    assert set(kustomization) <= {
        "apiVersion",
        "kind",
        "resources",
        "images",
        "replicas",
        "patches",
    }
    objects = _built(k8s / folder)
    assert one(objects, "Namespace")
    images = {
        container["image"].rpartition(":")[0]
        for pod in pods(objects)
        for container in pod.containers
    }
    assert {image["name"] for image in kustomization.get("images", [])} <= images
    for change in kustomization.get("replicas", []):
        (target,) = [
            item
            for item in of_kind(objects, "Deployment")
            if item["metadata"]["name"] == change["name"]
        ]
        assert target["spec"]["replicas"] != change["count"]
    for patch in kustomization.get("patches", []):
        (target,) = [
            item
            for item in of_kind(objects, patch["target"]["kind"])
            if item["metadata"]["name"] == patch["target"]["name"]
        ]
        for operation in yaml.safe_load(patch["patch"]):
            value: Any = target
            for key in operation["path"].strip("/").split("/"):
                value = value[key]
            assert type(value) is type(operation["value"])


def _kustomized(folder: Path) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would send."""
    command = ["kubectl", "kustomize"] if shutil.which("kubectl") else ["kustomize", "build"]
    built = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert built.returncode == 0, built.stderr
    return [item for item in yaml.load_all(built.stdout, Loader=yaml.CSafeLoader) if item]


NEEDS_KUSTOMIZE = pytest.mark.skipif(
    not (shutil.which("kubectl") or shutil.which("kustomize")),
    reason="neither kubectl nor kustomize is installed: overlays are read, not built",
)


@NEEDS_KUSTOMIZE
@pytest.mark.parametrize("name", PROFILES)
def test_kustomize_builds_the_manifests_as_they_are(name: str, k8s: Path) -> None:
    def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        return {(item["kind"], item["metadata"]["name"]): item for item in objects}

    built, written = by_name(_kustomized(k8s / name)), by_name(manifests(name))
    assert built.pop(("Namespace", "rollcast"))
    assert built == written


@NEEDS_KUSTOMIZE
def test_kustomize_builds_the_overlays(k8s: Path) -> None:
    cpu = manifests("cpu")
    own = _kustomized(k8s / "overlays" / "own-registry")
    mine = {container["image"] for pod in pods(own) for container in pod.containers}
    before = {container["image"] for pod in pods(cpu) for container in pod.containers}
    assert mine == {
        f"registry.example.com/{image}" if image.startswith("rollcast/") else image
        for image in before
    }
    assert len(own) == len(cpu) + 1, "and the namespace"

    two = _kustomized(k8s / "overlays" / "two-generators")
    assert one(two, "Deployment", "-generator")["spec"]["replicas"] == 2
    claim = one(two, "PersistentVolumeClaim", "-runs")["spec"]["resources"]["requests"]
    assert claim == {"storage": "200Gi"}
    trainer = one(manifests("8xh100"), "Job")
    assert one(two, "Job") == trainer, "fewer generators do not touch the trainer"


def test_the_guides_numbers_are_the_charts() -> None:
    """What the walk through an empty cluster asks for, and how many sets of values are rendered."""
    guide = " ".join((ROOT / "docs" / "kubernetes.md").read_text().split())
    objects = render(profile("cpu"))
    asked = [
        container["resources"]["requests"]
        for pod in pods(objects)
        if "helm.sh/hook" not in pod.owner["metadata"].get("annotations", {})
        for container in pod.spec["containers"]
    ]
    cores = sum(int(str(entry["cpu"]).removesuffix("m")) for entry in asked) / 1_000
    units = {"Gi": 1.0, "Mi": 1 / 1024}
    memory = sum(int(entry["memory"][:-2]) * units[entry["memory"][-2:]] for entry in asked)
    assert f"the run for {cores:.2f} cores and {memory:.1f} GiB" in guide
    tens = {50: "fifty", 60: "sixty", 70: "seventy"}[
        round(len(VALUE_SETS) - len(PROFILES_OF_THE_CHART), -1)
    ]
    assert f"every profile and some {tens} further value sets" in guide


def test_prerequisites_let_the_chart_in() -> None:
    """Namespaces of the policies, labels of the sidecars."""
    values = defaults()
    monitoring = yaml.safe_load((K8S / "prerequisites" / "kube-prometheus-stack.yaml").read_text())
    sidecar = monitoring["grafana"]["sidecar"]
    label = values["monitoring"]["dashboards"]["labels"]
    assert label == {sidecar["dashboards"]["label"]: sidecar["dashboards"]["labelValue"]}
    label = values["monitoring"]["dashboards"]["datasourceLabels"]
    assert label == {sidecar["datasources"]["label"]: sidecar["datasources"]["labelValue"]}
    assert (
        sidecar["dashboards"]["searchNamespace"]
        == sidecar["datasources"]["searchNamespace"]
        == "ALL"
    )
    allowed = values["networkPolicy"]["prometheus"]["namespaceSelector"]["matchLabels"]
    guide = (ROOT / "docs" / "kubernetes.md").read_text()
    assert f"-n {allowed['kubernetes.io/metadata.name']} --create-namespace" in guide
    (keda,) = values["networkPolicy"]["autoscalerFrom"]
    named = keda["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert f"helm install keda kedacore/keda -n {named} " in guide
    assert yaml.safe_load((K8S / "prerequisites" / "kind.yaml").read_text())["kind"] == "Cluster"
    keda = yaml.safe_load((K8S / "prerequisites" / "keda.yaml").read_text())
    assert "operator" in keda["resources"]
