"""`rollcast sweep values`: a sweep on Kubernetes, as one release for each run and a Job that pauses
and resumes them.
"""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast import __version__
from rollcast.config.errors import UserError
from rollcast.config.json_text import to_json

if TYPE_CHECKING:
    from rollcast.cli.sweep.arms import PlannedSweep
    from rollcast.local.ablation import PlannedRun

JOB_FILE = "sweep-job.yaml"
PLAN_FOLDER = "/etc/rollcast"
LEDGER_FOLDER = "/var/lib/rollcast"
SCRATCH_FOLDER = "/tmp"  # noqa: S108  # an emptyDir of the pod
PLAN = "plan.json"


def values(
    file: Annotated[Path, typer.Argument(metavar="SWEEP_FILE", help="sweep file")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of the files to write")],
    *,
    generators: Annotated[
        int, typer.Option(min=1, max=4096, help="generators of a run while it trains")
    ] = 1,
    image: Annotated[
        str | None, typer.Option(help="image of the sweep's Job; default: rollcast/control:VERSION")
    ] = None,
) -> None:
    """Write one Helm values file for each run, all of them paused without a generator, and
    sweep-job.yaml, for kubectl.

    \b
    rollcast sweep values sweep.yaml values/
    rollcast sweep values sweep.yaml values/ --generators 4
    """
    import yaml

    from rollcast.cli.sweep.arms import plan_sweep
    from rollcast.cli.values_files import write_values, write_values_files

    sweep = plan_sweep(file, on_cluster=True)

    def more_values(item: PlannedRun) -> dict[str, Any]:
        return {
            "fullnameOverride": full_name(item.config.run),
            "trainer": {"suspend": True},
            "generator": {"replicas": 0},
            "sweep": {"serviceAccount": sweep_account(sweep), "generators": generators},
        }

    paths = write_values_files(sweep.planned, folder, more_values)
    objects = job_objects(sweep, image or f"rollcast/control:{__version__}")
    job = folder / JOB_FILE
    write_values(job, yaml.safe_dump_all(objects, sort_keys=False))
    typer.echo("\n".join([*paths, str(job)]))


def full_name(run: str) -> str:
    """The name of a release's objects, as the chart makes it of fullnameOverride."""
    fits = f"n{run}" if run[0].isdigit() else run
    if fits != run or len(fits) > 40:
        fits = f"{fits[:33].removesuffix('-')}-{sha256(run.encode()).hexdigest()[:6]}"
    return fits


def sweep_account(sweep: PlannedSweep) -> str:
    return f"{sweep.name}-sweep"


def plan_as_json(sweep: PlannedSweep) -> dict[str, Any]:
    """All that the Job must know: what runs train is in their own releases."""
    return {
        "sweep": sweep.name,
        "terms": asdict(sweep.terms),
        "runs": [
            {
                "arm": item.variant.name,
                "description": item.variant.description,
                "run": item.config.run,
                "seed": item.config.seed,
            }
            for item in sweep.planned
        ],
    }


def load_plan(path: Path) -> PlannedSweep:
    """The plan in the Job's ConfigMap. Raises UserError for another file."""
    from rollcast.cli.sweep.arms import PlannedSweep
    from rollcast.config.run import load_settings, parse_run_config
    from rollcast.local.ablation import PlannedRun, Variant
    from rollcast.local.sweep.choice import SweepTerms

    plan = load_settings(path, "plan of a sweep")
    if plan.keys() != {"sweep", "terms", "runs"}:
        raise UserError(
            f"plan of a sweep {path}: is not what `rollcast sweep values` wrote; for a sweep file "
            "leave out --cluster"
        )
    planned = []
    for row in plan["runs"]:
        settings = {"run": row["run"], "seed": row["seed"], "model": {"path": "in-its-release"}}
        config = parse_run_config(settings, source=str(path))
        planned.append(PlannedRun(Variant(row["arm"], row["description"], {}), config))
    return PlannedSweep(plan["sweep"], Path(LEDGER_FOLDER), planned, SweepTerms(**plan["terms"]))


def job_objects(sweep: PlannedSweep, image: str) -> list[dict[str, Any]]:
    """Service account, plan, ledger and Job. The Roles are the releases': each names its own Job or
    JobSet and Deployment.
    """
    name = sweep_account(sweep)
    labels = {"app.kubernetes.io/name": "rollcast", "app.kubernetes.io/component": "sweep"}
    metadata = {"name": name, "labels": labels}
    plan = {PLAN: to_json(plan_as_json(sweep), indent=1)}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(name, image)}
    # A sweep that was evicted with its node goes on
    job = {"backoffLimit": 20, "template": template}
    objects: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("v1", "ServiceAccount", {}),
        ("v1", "ConfigMap", {"data": plan}),
        ("v1", "PersistentVolumeClaim", {"spec": claim}),
        ("batch/v1", "Job", {"spec": job}),
    )
    return [
        {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
        for version, kind, content in objects
    ]


def pod_spec(name: str, image: str) -> dict[str, Any]:
    """The pod of the Job, as restricted namespaces want it. `name`: of account, plan and ledger."""
    container = {
        "name": "sweep",
        "image": image,
        "command": ["rollcast"],
        "args": ["sweep", "run", f"{PLAN_FOLDER}/{PLAN}", "--cluster"],
        "env": [{"name": "HOME", "value": SCRATCH_FOLDER}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "plan", "mountPath": PLAN_FOLDER},
            {"name": "ledger", "mountPath": LEDGER_FOLDER},
            {"name": "scratch", "mountPath": SCRATCH_FOLDER},
        ],
    }
    user = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
    return {
        "serviceAccountName": name,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 60,
        "securityContext": user | {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "plan", "configMap": {"name": name}},
            {"name": "ledger", "persistentVolumeClaim": {"claimName": name}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }
