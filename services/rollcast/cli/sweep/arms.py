"""The arms of a sweep file as runs: overrides by name, a grid, recipes, each with every seed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.config.errors import UserError
from rollcast.config.sweep import load_sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rollcast.config.recipe import Recipe
    from rollcast.config.sweep import SweepFile
    from rollcast.local.ablation import PlannedRun, Variant
    from rollcast.local.ablation_parts import Change
    from rollcast.local.sweep.choice import SweepTerms

OF_THE_SWEEP = ("run", "folder", "seed", "budget", "stop_when")
"""Settings of a run file that are the sweep's: names, seeds, and no run ends by itself."""


@dataclass(frozen=True, slots=True)
class PlannedSweep:
    """A sweep file, resolved."""

    name: str
    folder: Path
    """Absolute."""
    planned: list[PlannedRun]
    terms: SweepTerms

    @property
    def descriptions(self) -> dict[str, str]:
        """Arm -> how it differs from the base."""
        return {item.variant.name: item.variant.description for item in self.planned}


def plan_sweep(path: Path, *, on_cluster: bool = False) -> PlannedSweep:
    """`on_cluster`: the trainer there has the model and the digests of the user's own functions.

    Raises UserError: one sentence for each mistake of the file.
    """
    from rollcast.config.run import load_run_config

    sweep = load_sweep(path)
    arms = find_arms(sweep, load_run_config(sweep.base).recipe, path)
    return plan_runs(sweep, arms, source=f"sweep file {path}: budget", on_cluster=on_cluster)


def plan_runs(
    sweep: SweepFile,
    arms: Sequence[Variant],
    *,
    source: str,
    with_whole: bool = False,
    on_cluster: bool = False,
) -> PlannedSweep:
    """The runs of these arms; `with_whole`: and of the base itself. Trains the demo's model first,
    if the base names it. Raises UserError, beginning with `source`.
    """
    from rollcast.cli.demo import with_its_model
    from rollcast.config.custom_function_digests import with_digests
    from rollcast.config.run import load_run_config
    from rollcast.local.ablation import plan
    from rollcast.local.ablation_parts import apply_change
    from rollcast.local.sweep.choice import SweepTerms

    base = load_run_config(sweep.base)
    target = sweep.target_device_hours or base.budget.device_hours
    if target is None:
        raise UserError(
            f"{source}: {sweep.base} has no budget.device_hours, the compute of one run at which "
            "the arms are compared; set it there, or target_device_hours in a sweep file"
        )
    # The sweep ends its runs itself, at the target.
    endless = {"steps": None, "device_hours": None, "endless": True}
    change: Change = {"run": sweep.sweep, "budget": endless, "stop_when": None}
    if sweep.local is not None:
        change["local"] = sweep.local.model_dump(exclude_unset=True)
    terms = SweepTerms(
        target=target,
        budget=sweep.budget.device_hours or (sweep.budget.runs or 0.0) * target,
        slice=sweep.slice,
        min_slice_pauses=sweep.min_slice_pauses,
        pause_below=sweep.pause_below,
        least_gain=sweep.least_gain,
    )
    if terms.budget < terms.slice * target:
        raise UserError(
            f"{source}: {terms.budget:g} device-hours are less than one slice, {terms.slice:g} of "
            f"{target:g}; give at least {terms.slice * target:g}"
        )
    check_num_runs(len(arms) + with_whole, sweep.seeds, source)
    base = apply_change(base, change, source=source)
    if not on_cluster:
        digests = with_digests(base.recipe)
        base = with_its_model(base.model_copy(update={"recipe": digests}))
    folder = (sweep.folder or base.folder / sweep.sweep).absolute()
    planned = plan(base, arms, num_seeds=sweep.seeds, folder=folder, with_whole=with_whole)
    return PlannedSweep(sweep.sweep, folder, planned, terms)


def check_num_runs(num_arms: int, num_seeds: int, source: str) -> None:
    """Raises UserError: more would not each get a slice of any budget, and 200 take a choice 1 GB
    of memory.
    """
    if num_arms * num_seeds > 100:
        raise UserError(
            f"{source}: makes {num_arms * num_seeds} runs (arms: {num_arms}, seeds: {num_seeds}); "
            "100 at most"
        )


def find_arms(sweep: SweepFile, base: Recipe, path: Path) -> list[Variant]:
    """Raises UserError: fewer than two arms, too many runs, two of one name, or a setting that is
    not an arm's.
    """
    from rollcast.cli.shipped_recipes import recipe_variants
    from rollcast.local.ablation import Variant

    num_arms = len(sweep.arms) + len(sweep.recipes)
    num_arms += prod(map(len, sweep.grid.values())) if sweep.grid else 0
    if num_arms < 2:
        raise UserError(
            f"sweep file {path}: makes {num_arms} arms; `arms`, `grid` and `recipes` together "
            "need at least 2"
        )
    check_num_runs(num_arms, sweep.seeds, f"sweep file {path}")
    arms = [Variant(arm.name, _in_words(arm.settings), _nest(arm.settings)) for arm in sweep.arms]
    arms += _grid_arms(sweep, path)
    arms += recipe_variants(base, sweep.recipes)
    names = [arm.name for arm in arms]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"sweep file {path}: {twice[0]} names two arms; rename one under `arms`, or remove it"
        )
    for arm in arms:
        if taken := [name for name in OF_THE_SWEEP if name in arm.change]:
            raise UserError(
                f"sweep file {path}: {arm.name} sets {taken[0]}, which the sweep sets for each "
                "run; remove it (the number of seeds is `seeds`, the end of a run "
                "`target_device_hours`)"
            )
    return arms


def _grid_arms(sweep: SweepFile, path: Path) -> list[Variant]:
    """Every combination of the grid's values, named by them."""
    from rollcast.local.ablation import Variant

    # A run's name has 63 characters at most, with the sweep's name and the seed
    longest = 63 - len(f"{sweep.sweep}-") - (len("-s99") if sweep.seeds > 1 else 0)
    arms = []
    for values in product(*sweep.grid.values()) if sweep.grid else ():
        settings = dict(zip(sweep.grid, values, strict=True))
        name = "-".join(
            f"{setting.rpartition('.')[2]}-{_short(value)}" for setting, value in settings.items()
        )
        name = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
        if len(name) > longest:
            raise UserError(
                f"sweep file {path}: grid: makes the arm {name}, whose name is longer than "
                f"{longest} characters; give its settings under `arms` with a name of your own"
            )
        arms.append(Variant(name, _in_words(settings), _nest(settings)))
    return arms


def _short(value: Any) -> str:
    """A value in an arm's name: of a mapping its `kind`, or its settings."""
    if isinstance(value, dict):
        return str(value.get("kind") or "-".join(f"{name}-{item}" for name, item in value.items()))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _nest(settings: dict[str, Any]) -> Change:
    """Dotted names as mappings within mappings; of a setting that is given twice the last one."""
    from rollcast.local.ablation_parts import merge_settings

    nested: Change = {}
    for name, value in settings.items():
        change = _nest(value) if isinstance(value, dict) else value
        for part in reversed(str(name).split(".")):
            change = {part: change}
        nested = merge_settings(nested, change)
    return nested


def _in_words(settings: dict[str, Any], prefix: str = "") -> str:
    words = []
    for name, value in settings.items():
        if isinstance(value, dict) and "kind" not in value:
            words.append(_in_words(value, f"{prefix}{name}."))
        else:
            words.append(f"{prefix}{name} {value}")
    return ", ".join(words)
