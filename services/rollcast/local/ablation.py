"""A set of runs on one machine, one after the other: a base and its variants, each with several
seeds.

plan -> for each run: finished already? -> skipped
                      has a history?    -> continued
                      else              -> started
     -> finished | failed (reported, the others go on) | interrupted (the set ends, to be continued)

ablation.json in the set's folder says after every run the progress of the set.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rollcast.config.base import Settings
from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.config.resolved import Difference, differences
from rollcast.config.run import RunConfig, load_run_config
from rollcast.local.ablation_parts import Change, apply_change, is_same_in_effect
from rollcast.local.custom_function_copies import is_move
from rollcast.local.frozen_forecast import conclude
from rollcast.local.status import StatusReader
from rollcast.local.supervisor import RunState, ServiceLostError
from rollcast.local.up import RunDeadlineError, View, run_locally
from rollcast.runfolder.files import ABLATION, RESULT, RUN_FILE, STEPS, UP_FILE
from rollcast.runfolder.folder import check_format, has_history
from rollcast.runfolder.outcomes import NUM_END_EVALUATIONS, RunRecord, SetRecord, State
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import StepRecord, as_json
from rollcast.runfolder.writing import make_folder, replace_json

WHOLE = "whole"
"""Name of the base among its variants."""


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    """The name of its row in the table: lower case and hyphens; part of its runs' names."""
    description: str
    """How it differs from the base, in words."""
    change: Change


@dataclass(frozen=True, slots=True)
class PlannedRun:
    variant: Variant
    config: RunConfig
    is_null_control: bool = False
    """Whether it is a variant that trains as the whole recipe does."""


def plan(
    base: RunConfig,
    variants: Sequence[Variant],
    *,
    num_seeds: int,
    folder: Path,
    with_whole: bool = True,
) -> list[PlannedRun]:
    """The base and every variant with the base's seed, then all of them with the next one, and so
    on.

    A set that is cut short so has every recipe before any is repeated. `folder` is absolute if the
    runs are made here. `with_whole`: whether the base itself is one of the runs. Raises UserError
    if a change clashes with the base.
    """
    whole = [Variant(WHOLE, "the whole recipe", {})] if with_whole else []
    rows = [*whole, *variants]
    planned = []
    for seed in range(base.seed, base.seed + num_seeds):
        for row in rows:
            run = f"{base.run}-{row.name}" + (f"-s{seed}" if num_seeds > 1 else "")
            run_settings = {"run": run, "seed": seed, "folder": str(folder)}
            config = apply_change(base, row.change | run_settings, source=row.name)
            planned.append(
                PlannedRun(row, config, row.name != WHOLE and is_same_in_effect(config, base))
            )
    return planned


def run_set(
    planned: Sequence[PlannedRun],
    *,
    folder: Path,
    resume: bool,
    make_run_view: Callable[[int], View],
    report: Callable[[str], None],
    max_seconds_per_run: float | None = None,
) -> list[RunRecord]:
    """Run those that are not finished; the records of all, in the order of the plan.

    `make_run_view`: the view for the run of that place. Raises UserError if the folder holds a set
    and `resume` is not asked for, or if one of its runs was made with other settings.
    """
    records = [_record(item) for item in planned]
    for item in planned:
        check_folder(item.config.run_folder, item.config, resume=resume)
    for index, (item, record) in enumerate(zip(planned, records, strict=True)):
        if (item.config.run_folder / RESULT).exists():  # it came to its end and was concluded
            _conclude(record, item.config)
        else:
            _run(item.config, record, make_run_view(index), max_seconds_per_run)
            if record.state is State.FAILED:
                report(f"{record.run} failed: {record.error}")
        write_progress(folder, records)
        if record.state is State.INTERRUPTED:
            break
    return records


def read_set(planned: Sequence[PlannedRun], folder: Path) -> list[RunRecord]:
    """The records of runs that were trained elsewhere, each in a folder of its name in `folder`;
    nothing is written.

    One that is not there, or holds no evaluation after the first step, failed. Raises UserError if
    a run was made with another recipe or seed.
    """
    records = [_record(item) for item in planned]
    for item, record in zip(planned, records, strict=True):
        check_format(item.config.run_folder)
        _check_recipe(item.config.run_folder, item.config.recipe, item.config.seed)
        reader = StatusReader(item.config)
        evaluations = reader.read().evaluations
        if evaluations and evaluations[-1].step > 0:
            rates = [point.pass_rate for point in evaluations]
            _finish(record, item.config.run_folder, rates[0], fmean(rates[-NUM_END_EVALUATIONS:]))
        else:
            record.state = State.FAILED
            record.error = f"{folder / record.run} holds no evaluation after the first step"
            if reader.num_skipped:
                record.error += f"; lines of its files that are no records: {reader.num_skipped}"
    return records


def write_progress(folder: Path, records: Sequence[RunRecord], **more: Any) -> None:
    """`more`: the result of the set, once it is complete.

    Raises UserError if it cannot be written.
    """
    make_folder(folder)
    replace_json(folder / ABLATION, as_json(SetRecord(list(records), **more)), go_on="--continue")


def _record(item: PlannedRun) -> RunRecord:
    return RunRecord(
        item.config.run,
        item.variant.name,
        item.variant.description,
        item.config.seed,
        str(item.config.run_folder),
        null_control=item.is_null_control,
    )


def _check_recipe(run_folder: Path, recipe: Recipe, seed: int) -> None:
    """Checks a run trained elsewhere whose folder holds its run file; paths and addresses may
    differ.
    """
    file = next(
        (run_folder / name for name in (UP_FILE, RUN_FILE) if (run_folder / name).exists()), None
    )
    if file is None:
        return
    trained_config = load_run_config(file, dropped=[])
    if _changes(trained_config.recipe, recipe) or trained_config.seed != seed:
        raise UserError(
            f"run folder {run_folder}: was made with another recipe or seed than the set's; give "
            "the --config, --without, --recipe and --seeds it was made with"
        )


def check_folder(folder: Path, settings: Settings, *, resume: bool) -> None:
    """Raises UserError if the folder holds a run made with other settings, or any run without
    `resume`.
    """
    if not has_history(folder):
        return
    if not resume:
        raise UserError(
            f"run folder {folder}: holds a run already; go on with --continue, or choose another "
            "--folder"
        )
    if (folder / UP_FILE).exists():
        changes = _changes(load_run_config(folder / UP_FILE, dropped=[]), settings)
        if different := ", ".join(sorted({change.field.partition(".")[0] for change in changes})):
            raise UserError(
                f"run folder {folder}: was made with other settings ({different}); choose another "
                "--folder"
            )


def _changes(earlier: Settings, current: Settings) -> list[Difference]:
    return [change for change in differences(earlier, current) if not is_move(change)]


def _run(
    config: RunConfig, record: RunRecord, view: View, max_seconds_per_run: float | None
) -> None:
    started_at = time.monotonic()
    try:
        ending = run_locally(
            config,
            resume=has_history(config.run_folder),
            view=view,
            max_seconds=max_seconds_per_run,
        )
    except (UserError, ServiceLostError, RunDeadlineError) as error:
        record.state = State.FAILED
        record.error = str(error)
    else:
        if ending is RunState.STOPPED:
            record.state = State.INTERRUPTED
        else:
            _conclude(record, config)
    record.seconds = round(time.monotonic() - started_at, 1)


def _conclude(record: RunRecord, config: RunConfig) -> None:
    """Note how the run ended; its result stays in its folder and says that it is finished."""
    result = conclude(config.run_folder, StatusReader(config).read())
    if result is None:
        record.state = State.FAILED
        record.error = "not one evaluation came back"
        return
    _finish(record, config.run_folder, result.initial, result.measured)


def _finish(record: RunRecord, run_folder: Path, initial: float, measured: float) -> None:
    """`initial`, `measured`: pass rates.

    A step that was lost and repeated counts once in the interrupted ratio.
    """
    record.state = State.FINISHED
    record.initial = initial
    record.measured = measured
    steps = RecordFile(run_folder / STEPS, StepRecord).read()
    ratios = {
        step.step: step.interrupted_ratio for step in steps if step.interrupted_ratio is not None
    }
    record.interrupted_ratio = fmean(ratios.values()) if ratios else None
