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


def plan_sweep(path: Path, *, with_digests: bool = True) -> PlannedSweep:
    """`with_digests`: of the user's own functions; on a cluster the trainer fills them in.

    Raises UserError: one sentence for each mistake of the file.
    """
    from rollcast.cli.ablate import with_its_model
    from rollcast.config import custom_function_digests
    from rollcast.config.run import load_run_config
    from rollcast.local.ablation import plan
    from rollcast.local.ablation_parts import apply_change
    from rollcast.local.sweep.choice import SweepTerms

    sweep = load_sweep(path)
    base = load_run_config(sweep.base)
    if with_digests:
        digests = custom_function_digests.with_digests(base.recipe)
        base = with_its_model(base.model_copy(update={"recipe": digests}))
    target = sweep.target_device_hours or base.budget.device_hours
    if target is None:
        raise UserError(
            f"sweep file {path}: target_device_hours: is missing, and {sweep.base} has no "
            "budget.device_hours; give the compute of one run at which the arms are compared"
        )
    arms = find_arms(sweep, base.recipe, path)
    folder = (sweep.folder or base.folder / sweep.sweep).absolute()
    # The sweep ends its runs itself, at the target.
    endless = {"steps": None, "device_hours": None, "endless": True}
    change: Change = {"run": sweep.sweep, "budget": endless, "stop_when": None}
    if sweep.local is not None:
        change["local"] = sweep.local.model_dump(exclude_unset=True)
    base = apply_change(base, change, source=f"sweep file {path}")
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
            f"sweep file {path}: budget: {terms.budget:g} device-hours are less than one slice, "
            f"{terms.slice:g} of {target:g}; give more, or a smaller slice"
        )
    planned = plan(base, arms, num_seeds=sweep.seeds, folder=folder, with_whole=False)
    return PlannedSweep(sweep.sweep, folder, planned, terms)


def find_arms(sweep: SweepFile, base: Recipe, path: Path) -> list[Variant]:
    """Raises UserError: fewer than two arms, too many runs, two of one name, or a setting that is
    not an arm's.
    """
    from rollcast.cli.ablate import recipe_variants
    from rollcast.local.ablation import Variant

    num_arms = len(sweep.arms) + len(sweep.recipes)
    num_arms += prod(map(len, sweep.grid.values())) if sweep.grid else 0
    if num_arms < 2:
        raise UserError(
            f"sweep file {path}: makes {num_arms} arms; `arms`, `grid` and `recipes` together "
            "need at least 2"
        )
    # More would not each get a slice of any budget, and 200 take a choice 1 GB
    if num_arms * sweep.seeds > 100:
        raise UserError(
            f"sweep file {path}: makes {num_arms * sweep.seeds} runs (arms: {num_arms}, seeds: "
            f"{sweep.seeds}); 100 at most"
        )
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
