"""`rollcast demo`: the whole system on a tiny task, in some minutes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rollcast.config.run import RunConfig
    from rollcast.local.demo.base_model import BaseModel


def demo(
    seed: Annotated[int, typer.Option(help="of prompt order and sampling")] = 0,
    folder: Annotated[Path, typer.Option(help="folder in which the run's folder is made")] = Path(
        "runs"
    ),
    config: Annotated[Path | None, typer.Option(help="run file instead of the shipped one")] = None,
) -> None:
    """Watch a tiny model learn to add, and the forecast of its end.

    Trains a base model from scratch (once, about a minute), then runs the real services: vLLM
    generator, FSDP trainer, weights in flight, forecaster with its live page.

    \b
    rollcast demo
    rollcast demo --seed 1 --folder my-runs
    """
    from rollcast.cli.up import run_and_conclude
    from rollcast.config.run import load_run_config
    from rollcast.local import preflight
    from rollcast.local.demo.base_model import BaseModel

    base_model = BaseModel()
    settings = load_run_config(config or shipped_config("demo.yaml"))
    settings = settings.model_copy(
        update={"seed": seed, "folder": folder, "run": free_name(settings.run, folder)}
    )
    preflight.check(
        with_model(settings, base_model.key)
    )  # before a minute of training; not in the cache yet
    model = prepare_base_model(base_model)
    sys.exit(run_and_conclude(with_model(settings, str(model)), resume=False))


def shipped_config(name: str) -> Path:
    """A run file of the installed package, or of the repository that it is installed from."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "configs" / name
    return installed if installed.exists() else package.parents[1] / "configs" / name


def prepare_base_model(base_model: BaseModel) -> Path:
    """The folder of the base model, which is trained unless it is cached."""
    from rollcast.cli.views import progress_bar
    from rollcast.local.demo.base_model import ensure_base_model

    with progress_bar("training the base model from scratch (once)") as show:
        folder = ensure_base_model(base_model, show)
    start = json.loads((folder / "base_model.json").read_text())["pass_rate"]
    typer.echo(f"base model: {folder} (pass rate {start:.2f} before RL)")
    return folder


def with_model(settings: RunConfig, path: str) -> RunConfig:
    return settings.model_copy(update={"model": settings.model.model_copy(update={"path": path})})


def with_its_model(base: RunConfig) -> RunConfig:
    """Trains the demo's model first, if the run file names it."""
    from rollcast.local import preflight
    from rollcast.local.demo.base_model import PLACEHOLDER, BaseModel

    if base.model.path != PLACEHOLDER or Path(PLACEHOLDER).exists():
        return base
    preflight.check(with_model(base, BaseModel().key))
    return with_model(base, str(prepare_base_model(BaseModel())))


def free_name(name: str, folder: Path) -> str:
    """The name, or the name with the first number that no former run has."""
    from rollcast.runfolder.folder import has_history

    number = 1
    free = name
    while has_history(folder / free):
        number += 1
        free = f"{name}-{number}"
    return free
