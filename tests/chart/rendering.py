"""The chart, rendered by Helm's own engine, as objects."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.render_cache import RenderCache, files_digest

helm_chart = pytest.importorskip(
    "helm_python.chart", reason="helm-python-sdk is not installed: no chart is rendered"
)
helm_errors = pytest.importorskip("helm_python.errors")

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "rollcast"
PROFILES = sorted(path.stem.removeprefix("values-") for path in CHART.glob("values-*.yaml"))
NAMESPACE = "ml"


class HelmLoader(yaml.CSafeLoader):
    """YAML as Helm's own library reads it: `y` is a truth and 1e3 a number, which PyYAML leaves
    texts.
    """

    bool_values = {**yaml.CSafeLoader.bool_values, "y": True, "n": False}


HelmLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^[yYnN]$"), list("yYnN"))
HelmLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)
WORKLOADS = ("Deployment", "StatefulSet", "Job", "JobSet", "Pod")
Object = dict[str, Any]


@functools.cache
def chart(path: Path = CHART) -> Any:
    return helm_chart.Chart.load(path)


@functools.cache
def _values_file(name: str) -> str:
    return json.dumps(yaml.load((CHART / name).read_text(), Loader=yaml.CSafeLoader))


def profile(name: str) -> Object:
    """What a profile changes of the defaults; "" = nothing."""
    return json.loads(_values_file(f"values-{name}.yaml")) if name else {}


def defaults() -> Object:
    values: Object = json.loads(_values_file("values.yaml"))
    return values


def merged(base: Object, change: Object) -> Object:
    """As Helm merges values files: maps deeply, everything else is replaced."""
    result = copy.deepcopy(base)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def render(
    values: Object, *, name: str = "demo", namespace: str = NAMESPACE, path: Path = CHART
) -> list[Object]:
    """Every object that would be sent to the API server, the caller's to change.

    Raises Helm's error.
    """
    objects: list[Object] = json.loads(
        _rendered(json.dumps(values, sort_keys=True), name, namespace, path)[0]
    )
    return objects


def notes(values: Object, path: Path = CHART) -> str:
    return _rendered(json.dumps(values, sort_keys=True), "demo", NAMESPACE, path)[1]


@functools.lru_cache(maxsize=300)
def _rendered(values: str, name: str, namespace: str, path: Path) -> tuple[str, str]:
    """Objects as JSON, and the notes. A chart's folder must stay as it is once it was rendered."""
    key = json.dumps([files_digest(path), name, namespace, values])
    objects, text = json.loads(_cache().get(key, lambda: _render(values, name, namespace, path)))
    return objects, text


@functools.cache
def _cache() -> RenderCache:
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return RenderCache(f"{files_digest(CHART)} {code} {version('helm-python-sdk')}")


def _render(values: str, name: str, namespace: str, path: Path) -> str:
    files = chart(path).render(json.loads(values), name=name, namespace=namespace)
    notes = "".join(text for file, text in files.items() if file.endswith("NOTES.txt"))
    texts = (text for file, text in files.items() if not file.endswith("NOTES.txt"))
    objects = [item for text in texts for item in yaml.load_all(text, Loader=HelmLoader) if item]
    written = json.dumps(objects)
    assert json.loads(written) == objects, "JSON cannot hold what YAML holds"
    return json.dumps([written, notes])


def copy_for(version: str, folder: Path) -> Path:
    """The chart as a cluster of that version sees it: the engine renders for the newest one that it
    knows alone.
    """
    copied = shutil.copytree(CHART, folder / f"rollcast-{version}")
    for template in copied.rglob("templates/**/*.*"):
        template.write_text(
            template.read_text().replace(".Capabilities.KubeVersion.Version", f'"v{version}.0"')
        )
    return copied


def chart_of(folder: Path, *templates: str) -> Path:
    """The chart with the templates of these file names alone: it renders in half of the time."""
    copied = shutil.copytree(CHART, folder / "rollcast")
    for template in copied.rglob("templates/**/*.yaml"):
        if template.name not in templates:
            template.unlink()
    return copied


def of_kind(objects: list[Object], kind: str, suffix: str = "") -> list[Object]:
    return [
        item
        for item in objects
        if item["kind"] == kind and item["metadata"]["name"].endswith(suffix)
    ]


def one(objects: list[Object], kind: str, suffix: str = "") -> Object:
    (found,) = of_kind(objects, kind, suffix)
    return found


@dataclass(frozen=True)
class PodOf:
    """Template of the pods of one workload."""

    owner: Object
    metadata: Object
    spec: Object

    @property
    def name(self) -> str:
        return f"{self.owner['kind']}/{self.owner['metadata']['name']}"

    @property
    def role(self) -> str:
        return str(self.metadata["labels"]["app.kubernetes.io/component"])

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def pods(objects: list[Object]) -> Iterator[PodOf]:
    for item in objects:
        kind = item["kind"]
        if kind == "Pod":
            yield PodOf(item, item["metadata"], item["spec"])
        elif kind == "JobSet":
            for job in item["spec"]["replicatedJobs"]:
                template = job["template"]["spec"]["template"]
                yield PodOf(item, template["metadata"], template["spec"])
        elif kind in WORKLOADS:
            template = item["spec"]["template"]
            yield PodOf(item, template["metadata"], template["spec"])


def pod_of(objects: list[Object], role: str) -> PodOf:
    (found,) = [pod for pod in pods(objects) if pod.role == role]
    return found


def run_file(objects: list[Object]) -> Object:
    """The run file as pods read it."""
    (text,) = [
        item["data"]["run.yaml"]
        for item in of_kind(objects, "ConfigMap", "-run")
        if "run.yaml" in item["data"]
    ]
    return yaml.load(text, Loader=yaml.CSafeLoader)


CPU = profile("cpu")


def trainer_job(values: Object) -> str:
    """The name of the trainer's Job, rendered with `values` over those of the cpu profile."""
    jobs = of_kind(render(merged(CPU, values)), "Job")
    (name,) = [job["metadata"]["name"] for job in jobs if "-trainer-" in job["metadata"]["name"]]
    return str(name)
