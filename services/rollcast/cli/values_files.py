"""Helm values files of planned runs: the settings that go with a run to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.local.ablation import PlannedRun

    ValuesOfRun = Callable[[PlannedRun], dict[str, Any]]
OF_THE_RUN = (
    "run",
    "seed",
    "model",
    "tasks",
    "recipe",
    "budget",
    "stop_when",
    "record",
    "generator",
    "trainer",
    "weights",
)
"""Sections of a run file that go with it to another machine."""
OF_THE_CHART = ("http_port", "tensor_parallel", "cpu")
"""Settings in them that do not."""


def write_values_files(
    planned: Sequence[PlannedRun], folder: Path, more_values: ValuesOfRun | None = None
) -> list[str]:
    """One YAML file for each run, to be given to helm with -f: under `config` the settings of the
    run itself, with the `more_values` of the run. Folders, addresses, ports and credentials are the
    chart's, which refuses them here. Returns the paths."""
    import yaml

    paths = []
    for item in planned:
        path = folder / f"{item.config.run}.yaml"
        settings = item.config.model_dump(mode="json", include=set(OF_THE_RUN))
        values = {"config": _drop_chart_settings(settings)}
        if more_values is not None:
            values |= more_values(item)
        text = yaml.safe_dump(values, sort_keys=False)
        write_values(path, f"# {item.config.run}: {item.variant.description}\n{text}")
        paths.append(str(path))
    return paths


def write_values(path: Path, text: str) -> None:
    """Raises UserError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise UserError(
            f"folder {path.parent}: cannot be written ({error.strerror}); choose another"
        ) from None


def _drop_chart_settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        section: {name: item for name, item in value.items() if name not in OF_THE_CHART}
        if isinstance(value, dict)
        else value
        for section, value in settings.items()
        if value is not None
    }
