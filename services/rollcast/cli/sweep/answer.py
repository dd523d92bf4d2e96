"""The answer of a sweep: the arm to use, its chance, the cost, and the readings that would change
it.

Ceiling first, then speed, as in the paper: arms are compared by A, and those whose A cannot be
separated by their compute half-way up.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rollcast.cli import report
from rollcast.cli.output import say
from rollcast.cli.run_report import number
from rollcast.curves import amounts

if TYPE_CHECKING:
    from rollcast.cli.sweep.arms import PlannedSweep
    from rollcast.local.ablation import PlannedRun
    from rollcast.local.sweep.choice import SweepChoice
    from rollcast.local.sweep.ledger import SweepLedger
    from rollcast.local.sweep.loop import SliceRunner
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.law.curve import Curve


class SweepAnswer:
    """Makes the answer after each choice. An arm is fitted again when it has new readings."""

    def __init__(self, sweep: PlannedSweep, runner: SliceRunner, ledger: SweepLedger) -> None:
        self._sweep = sweep
        self._runner = runner
        self._ledger = ledger
        self._fits: dict[str, tuple[int, Forecast]] = {}

    def make(self, choice: SweepChoice) -> dict[str, Any]:
        """The whole answer as JSON."""
        from rollcast.local.sweep.choice import pause_bound

        sweep = self._sweep
        terms = sweep.terms
        ledger = self._ledger
        curves = {
            item.config.run: curve
            for item in sweep.planned
            if (curve := self._runner.curve(item)) is not None
        }
        forecasts = self._fit(curves)
        arms = [self._arm(name, choice, curves, forecasts.get(name)) for name in sweep.descriptions]
        arms.sort(key=lambda arm: -1.0 if arm["level"] is None else arm["level"]["mean"])
        arms.reverse()
        best = choice.best
        learned = sum(float(curve.compute[-1]) for curve in curves.values())
        whole = terms.target * len(sweep.planned)
        return {
            "sweep": sweep.name,
            "folder": str(sweep.folder),
            "is_over": choice.run is None,
            "reason": choice.reason,
            "next": None if choice.run is None else choice.run.config.run,
            "gain": choice.gain,
            "slice": choice.slice_share,
            "unit": "device_hours",
            "target": terms.target,
            "budget": terms.budget,
            "spent": choice.spent,
            "learned": learned,
            "pause": {"count": ledger.num_pauses, "each": ledger.pause_device_hours()},
            "all_whole": whole,
            "saved": max(0.0, whole - choice.spent),
            "chosen": None if best is None else best.arm,
            "chance": None if best is None else best.chance,
            "go_on": None if best is None else self._go_on(best.arm, curves),
            "arms": arms,
            "comparison": _compare(arms, forecasts) if choice.run is None else [],
            "would_change": _would_change(arms, pause_bound(len(choice.arms), terms.pause_below)),
        }

    def _fit(self, curves: dict[str, Curve]) -> dict[str, Forecast]:
        """The law of each arm that has readings, by name; its seeds share one."""
        from rollcast.scaling.decisions.repeats import Repeats

        forecasts = {}
        for name in self._sweep.descriptions:
            of_arm = [
                curves[item.config.run]
                for item in self._sweep.planned
                if item.variant.name == name and item.config.run in curves
            ]
            num_points = sum(len(curve) for curve in of_arm)
            if not of_arm:
                continue
            if name not in self._fits or self._fits[name][0] != num_points:
                self._fits[name] = (num_points, Repeats.from_curves(name, of_arm).joint)
            forecasts[name] = self._fits[name][1]
        return forecasts

    def _arm(
        self,
        name: str,
        choice: SweepChoice,
        curves: dict[str, Curve],
        forecast: Forecast | None,
    ) -> dict[str, Any]:
        from rollcast.curves.answer import law_as_json, law_of_curve

        law = law_as_json(
            None if forecast is None else law_of_curve(forecast, amounts.MEDIAN_AND_90)
        )
        outlook = next((arm for arm in choice.arms if arm.arm == name), None)
        runs = [
            self._run(item, curves.get(item.config.run))
            for item in self._sweep.planned
            if item.variant.name == name
        ]
        return {
            "arm": name,
            "description": self._sweep.descriptions[name],
            "asymptote": law["asymptote"],
            "exponent": law["exponent"],
            "verdict": None if forecast is None else str(forecast.verdict.kind),
            "level": None
            if outlook is None
            else {"mean": outlook.level, "q05": outlook.low, "q95": outlook.high},
            "chance": None if outlook is None else outlook.chance,
            "spent": sum(run["spent"] for run in runs),
            "paused": self._why_paused(name, choice, runs),
            "runs": runs,
        }

    def _run(self, item: PlannedRun, curve: Curve | None) -> dict[str, Any]:
        run = item.config.run
        readings = []
        if curve is not None:
            readings = [
                list(point)
                for point in zip(curve.compute.tolist(), curve.pass_rate.tolist(), strict=True)
            ]
        return {
            "run": run,
            "seed": item.config.seed,
            "folder": str(item.config.run_folder),
            "spent": self._ledger.run_device_hours(run),
            "share": min(1.0, readings[-1][0] / self._sweep.terms.target) if readings else 0.0,
            "failure": self._ledger.failure(run),
            "readings": readings,
        }

    def _why_paused(self, name: str, choice: SweepChoice, runs: list[dict[str, Any]]) -> str | None:
        """None if one of the arm's runs trains now."""
        from rollcast.local.sweep.choice import is_reached, pause_bound, unpaused_arms

        if choice.run is not None and choice.run.variant.name == name:
            return None
        open_runs = [run for run in runs if run["failure"] is None]
        if not open_runs:
            return f"failed: {runs[-1]['failure']}"
        if all(is_reached(run["share"], 1.0) for run in open_runs):
            return "has reached the target"
        chance = choice.chances.get(name, 0.0)
        pause_below = self._sweep.terms.pause_below
        if name not in unpaused_arms(choice.arms, pause_below):
            bound = pause_bound(len(choice.arms), pause_below)
            return f"its chance {chance:.3f} is below {bound:.3g}"
        if choice.run is None:
            return choice.reason
        return f"a slice of {choice.run.variant.name} is expected to change the choice more"

    def _go_on(self, arm: str, curves: dict[str, Curve]) -> str | None:
        """The command that continues the arm's furthest run; None without one on this machine."""
        from rollcast.runfolder.files import UP_FILE

        runs = [
            item
            for item in self._sweep.planned
            if item.variant.name == arm and item.config.run in curves
        ]
        runs = [item for item in runs if (item.config.run_folder / UP_FILE).exists()]
        if not runs:
            return None
        furthest = max(runs, key=lambda item: float(curves[item.config.run].compute[-1]))
        up_file = furthest.config.run_folder / UP_FILE
        return shlex.join(["rollcast", "up", "--config", str(up_file), "--resume"])


def _compare(arms: list[dict[str, Any]], forecasts: dict[str, Forecast]) -> list[str]:
    """The chosen arm, the first, with those that come closest."""
    from rollcast.scaling.decisions.compare import compare

    described = [
        forecasts[arm["arm"]]
        for arm in [*arms[:1], *_closest(arms)]
        if arm["arm"] in forecasts and forecasts[arm["arm"]].verdict.is_described
    ]
    if not described or described[0].curve.name != arms[0]["arm"]:
        return []
    return [
        f"{described[0].curve.name} and {other.curve.name}: "
        f"{compare([described[0], other])[0].verdict}"
        for other in described[1:]
    ]


def _closest(arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The arms next to the chosen one, the first; three, since each comparison takes two fits."""
    return sorted(arms[1:], key=lambda arm: -(arm["chance"] or 0.0))[:3]


def _would_change(arms: list[dict[str, Any]], least_chance: float) -> list[str]:
    """The level that another arm has to reach to be chosen, for the arms that still may."""
    if not arms or arms[0]["level"] is None:
        return []
    best = arms[0]
    return [
        f"{arm['arm']} is the better choice if it ends above {best['level']['mean']:.3f}: it is "
        f"expected at {arm['level']['mean']:.3f} (90 % {arm['level']['q05']:.3f} to "
        f"{arm['level']['q95']:.3f}), with a chance of {arm['chance']:.2f} to be the best."
        for arm in _closest(arms)
        if arm["level"] is not None and arm["chance"] >= least_chance
    ] or [f"No other arm has a chance of {least_chance:.3g} to be the best."]


def show_answer(answer: dict[str, Any]) -> None:
    header, rows = table_of_arms(answer)
    report.show_table(header, rows, text_columns=header[-1:])
    for sentence in sentences(answer):
        say(sentence)
    say(f"runs: {answer['folder']}")


def table_of_arms(answer: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heading and rows, one for each arm, the best first."""
    columns: dict[str, report.Cell] = {
        "arm": lambda arm: arm["arm"],
        "A (90 %)": lambda arm: number(arm["asymptote"], ".3f"),
        "B (90 %)": lambda arm: number(arm["exponent"], ".2f"),
        f"level at {amounts.amount(answer['target'])}": _level,
        "chance": lambda arm: "-" if arm["chance"] is None else f"{arm['chance']:.2f}",
        "spent": lambda arm: amounts.amount(arm["spent"]),
        "trained": lambda arm: ", ".join(f"{run['share']:.0%}" for run in arm["runs"]),
        "paused because": lambda arm: arm["paused"] or "",
    }
    return list(columns), [[cell(arm) for cell in columns.values()] for arm in answer["arms"]]


def _level(arm: dict[str, Any]) -> str:
    level = arm["level"]
    if level is None:
        return report.NO_NUMBER
    return f"{level['mean']:.3f} ({level['q05']:.3f} to {level['q95']:.3f})"


def sentences(answer: dict[str, Any]) -> list[str]:
    """The answer in words."""
    unit = answer["unit"].replace("_", "-")
    spent, budget, whole = (
        amounts.amount(answer[name]) for name in ("spent", "budget", "all_whole")
    )
    pause = answer["pause"]
    lines = []
    if answer["chosen"] is None:
        lines.append(f"No arm is chosen: {answer['reason']}.")
    else:
        lines.append(
            f"{'Use' if answer['is_over'] else 'So far'} {answer['chosen']}: it is the best at "
            f"{amounts.amount(answer['target'])} {unit} with a chance of {answer['chance']:.2f}."
        )
    if answer["is_over"] and answer["chosen"] is not None:
        lines.append(f"The sweep ended: {answer['reason']}.")
    lines += answer["comparison"]
    lines += answer["would_change"] if answer["chosen"] is not None else []
    saved = f", so {answer['saved'] / answer['all_whole']:.0%} of that is saved"
    lines.append(
        f"Spent {spent} of {budget} {unit}; all runs to the target take {whole}"
        f"{saved if answer['is_over'] else ''}. Readings cost "
        f"{amounts.amount(answer['learned'])}, the rest is starts, stops and lost work. Runs were "
        f"paused {pause['count']} times; a pause and a resume take "
        f"{amounts.amount(pause['each'])}."
    )
    lines += [
        f"{run['run']} is left out, since it failed twice: {run['failure']}. If the cause is gone, "
        "give the same command: it tries the run once more."
        for arm in answer["arms"]
        for run in arm["runs"]
        if run["failure"] is not None
    ]
    if answer["go_on"] is not None and answer["is_over"]:
        lines.append(f"Continue it: {answer['go_on']}")
    return lines
