"""Writes FOLDER/PROFILE/rollcast.yaml, the chart rendered for clusters without Helm.

    python helm/manifests.py [FOLDER]     k8s/ of this checkout by default

The files are generated for each release and are not committed. Credentials are random, so no file
contains them: the Secret `rollcast-auth` is created by hand (docs/kubernetes.md).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from helm_python.chart import Chart

HERE = Path(__file__).parent
TARGET = HERE.parent / "k8s"
PROFILES = ("cpu", "8xh100")
NAME = NAMESPACE = "rollcast"
SECRET = "rollcast-auth"  # noqa: S105  # a name


class Dumper(yaml.SafeDumper):
    """Texts of several lines stay readable."""


def _text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


Dumper.add_representer(str, _text)


def manifests() -> dict[str, str]:
    """Profile -> every object but Helm's tests, as one YAML stream."""
    chart = Chart.load(HERE / "rollcast")
    texts = {}
    for profile in PROFILES:
        values = yaml.safe_load(
            (HERE / "rollcast" / f"values-{profile}.yaml").read_text(encoding="utf-8")
        )
        rendered = chart.render(
            values | {"auth": {"existingSecret": SECRET}}, name=NAME, namespace=NAMESPACE
        )
        documents = [
            _without_helm(document)
            for file in sorted(rendered)
            if file.endswith(".yaml")
            for document in yaml.safe_load_all(rendered[file])
            if document and _without_helm_too(document)
        ]
        head = (
            f"# Written by helm/manifests.py from helm/rollcast/values-{profile}.yaml; needs the "
            f"Secret {SECRET}.\n"
        )
        texts[profile] = head + yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=120)
    return texts


def _without_helm_too(document: Any) -> bool:
    """Whether it is no hook, or what the last hook of an install leaves:
    which Job the release has.
    """
    hook = document["metadata"].get("annotations", {}).get("helm.sh/hook")
    return hook is None or (document["kind"] == "ConfigMap" and "post-install" in hook)


def _without_helm(node: Any) -> Any:
    """Nobody manages these but their owner."""
    if isinstance(node, list):
        return [_without_helm(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: "kubectl" if key == "app.kubernetes.io/managed-by" else _without_helm(value)
        for key, value in node.items()
        if key not in ("helm.sh/chart", "helm.sh/resource-policy")
        and not key.startswith("helm.sh/hook")
    }
    if not kept.get("annotations", True):
        del kept["annotations"]
    return kept


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    for profile, text in manifests().items():
        path = target / profile / "rollcast.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
