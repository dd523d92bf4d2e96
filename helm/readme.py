"""Writes rollcast/README.md: how the chart is installed, and a table of values.yaml made from its
comments.

    python helm/readme.py [--check]

A comment that begins with `# --` describes the value below it. A value without one is in the table
with its default alone; a group is described by its values, and shown as one line where it is an
empty map or a list.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "rollcast"
README = CHART / "README.md"
INTRODUCTION = """# Chart `rollcast`

One release is one run: a trainer (Indexed Job or JobSet), generators (Deployment), Redis, the
forecaster and, if wanted, an autoscaler, graders and servers of environments. The walkthrough,
upgrades, sizes and networking are in `docs/kubernetes.md`.

    kubectl create namespace rl
    # a whole run without a GPU
    helm install demo helm/rollcast -n rl -f helm/rollcast/values-cpu.yaml
    # one node of eight
    helm install mine helm/rollcast -n rl -f helm/rollcast/values-8xh100.yaml
    # 64 GPUs generate, 16 train
    helm install study helm/rollcast -n rl -f helm/rollcast/values-scalerl-8b.yaml
    # three trainer nodes, TP
    helm install moe helm/rollcast -n rl -f helm/rollcast/values-moe.yaml
    # an ablation
    helm install one helm/rollcast -n rl -f helm/rollcast/values-8xh100.yaml \\
      -f helm/recipes/scalerl-without-cispo.yaml
    helm test demo -n rl
    helm package helm/rollcast && helm push rollcast-0.2.0.tgz oci://registry.example.com/charts

`values.schema.json` refuses unknown names and wrong kinds, `templates/validate.yaml` values that do
not fit each other. `config`, the run file (`rollcast config schema` describes it), is checked by
`rollcast config check` itself, in a Job that runs before an install or an upgrade creates or
changes anything. If the run file is wrong, Helm stops with "job RELEASE-rollcast-check failed" and,
from Helm 4 on, prints why. The sentences are also here, until the next try:

    kubectl -n NAMESPACE logs job/RELEASE-rollcast-check

Fix the values, then `helm upgrade --install`. Without a cluster the same check is

    helm template RELEASE helm/rollcast -f VALUES -s templates/configmap.yaml \\
      | yq '.data."run.yaml"' > run.yaml
    rollcast config check run.yaml --elsewhere

`generator`, `trainer`, `forecaster`, `autoscaler`, `grader` and `redis` all know `image`,
`resources`, `extraArgs` and the fields of `everyRole`, which sets them once for all six. A role's
own value comes first: its keys in maps, its entries in lists. Trainer and generator also know
`resourceClaims` and `hostNetwork`; the table shows these for the generator.

    everyRole:
      nodeSelector: {pool: rl}
      tolerations: [{key: rl, operator: Exists}]
      extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
      # what a namespace's quota asks for, of hooks and Redis's exporter too
      resources: {limits: {cpu: "8"}}

`helm upgrade --reuse-values` keeps the earlier chart's defaults; the chart adds the values that are
new since, and accepts values that it no longer has and names them in its notes. Arguments of the
services are those of `appVersion`: a tag of another version may have images that do not know them
(exit code 2), and the notes say so.

| value | default | meaning |
|---|---|---|
"""
ENVIRONMENTS = """
## Servers of environments

Each entry of `environments` gets a Deployment, a Service, a NetworkPolicy, a disruption budget and,
if wanted, an HPA. Only generators reach it, and it reaches nothing unless `egress` says so. Its
pods hold no credential of the run, no volume of it and no service-account token.

    environments:
      - name: echo
        image: {repository: team/echo-env, tag: "1.2"}
        replicas: 2
        scaling: {maxReplicas: 8}
        readinessPath: /health
      - name: files
        image: {repository: team/files-mcp, tag: "3.0"}
        sticky: true
        extraEnv: [{name: MCP_TOKEN, valueFrom: {secretKeyRef: {name: files, key: token}}}]
        egress: [{to: [{ipBlock: {cidr: 10.7.0.0/16}}], ports: [{port: 443}]}]
    config:
      tasks:
        environments:
          - {kind: openenv, name: echo, url: "http://demo-rollcast-env-echo:8000",
             interpreter: /opt/openenv/bin/python}
          - {kind: tools, name: files,
             mcp: [{name: files, url: "http://demo-rollcast-env-files:8000/mcp",
                    token_variable: FILES_TOKEN}]}
    generator:
      extraEnv: [{name: FILES_TOKEN, valueFrom: {secretKeyRef: {name: files, key: token}}}]

The notes after an install name the addresses. A token that the run file names is a variable of the
generators. OpenEnv's client runs in the generators with an `interpreter` of its own, because its
packages do not agree with vLLM's. The generator image needs a layer with it:

    FROM rollcast/generator:0.2.0
    USER root
    RUN /usr/local/bin/python -m venv /opt/openenv \\
     && /opt/openenv/bin/pip install --no-cache-dir openenv==0.10.0
    USER 1000:1000

Environments of the kinds class and tools, except MCP servers behind an address, have no server:
they run in processes of the generator pods and share `generator.resources`. Their files and
packages are in the generator image or in a volume of `generator.extraVolumes`.

| field | default | meaning |
|---|---|---|
"""
SHOWN_ONCE = {"resources", "extraArgs", "resourceClaims", "hostNetwork"}
_KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9_]*):")


@dataclass(frozen=True)
class Row:
    path: str
    default: str
    text: str


def descriptions(text: str) -> dict[str, str]:
    """Path of a value -> the comment above it."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            if stripped.startswith("# -- "):
                comment = [stripped.removeprefix("# -- ")]
            elif comment:
                comment.append(stripped.lstrip("# "))
            continue
        if key := _KEY.match(line):
            indent = len(key[1])
            path = [*(entry for entry in path if entry[0] < indent), (indent, key[2])]
            if comment:
                found[".".join(name for _, name in path)] = " ".join(comment)
        comment = []
    return found


def rows(values: dict[str, Any], told: dict[str, str], above: str = "") -> list[Row]:
    """One row a value, in the order of the file; `config` is one value."""
    result: list[Row] = []
    for name, value in values.items():
        path = f"{above}{name}"
        role, _, rest = path.partition(".")
        if (
            role in ("trainer", "forecaster", "autoscaler", "grader", "redis")
            and rest in SHOWN_ONCE
            and path not in told
        ):
            continue
        if (
            ".image." in path
            and not path.startswith("generator.")
            and name != "repository"
            and path not in told
        ):
            continue
        if isinstance(value, dict) and value and path not in ("config", "generator.resources"):
            if path in told:
                result.append(Row(path, "", told[path]))
            result += rows(value, told, f"{path}.")
            continue
        default = (
            "see values.yaml" if isinstance(value, dict) and value else f"`{json.dumps(value)}`"
        )
        result.append(Row(path, default, told.get(path, "")))
    return result


def table(file: str) -> str:
    text = (CHART / file).read_text(encoding="utf-8")
    return "".join(
        (
            f"| `{row.path}` | {row.default.replace('|', chr(92) + '|')} | "
            f"{row.text.replace('|', chr(92) + '|')} |\n"
        )
        for row in rows(yaml.safe_load(text), descriptions(text))
    )


def readme() -> str:
    return (
        INTRODUCTION
        + table("values.yaml")
        + ENVIRONMENTS
        + table("files/environment-defaults.yaml")
    )


def main() -> int:
    text = readme()
    if "--check" in sys.argv:
        same = README.exists() and README.read_text(encoding="utf-8") == text
        if not same:
            print(f"{README} is out of date: run python helm/readme.py")
        return 0 if same else 1
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
