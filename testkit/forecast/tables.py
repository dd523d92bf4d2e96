"""The figures as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BASELINES = ("last value", "power law", "log-linear", "paper grid", "curve_fit", "curve families")


def plain(figures: Mapping[str, Any]) -> None:
    """One line per figure."""
    for name, value in figures.items():
        print(f"{name:40s} {value:.4g}" if isinstance(value, float) else f"{name:40s} {value}")


def rows(figures: Sequence[Mapping[str, Any]]) -> None:
    """One line per row."""
    for row in figures:
        print(
            "  ".join(
                f"{value:<14}" if isinstance(value, str) else f"{value}" for value in row.values()
            )
        )


def print_published(figures: Mapping[str, Any]) -> None:
    """Printed and found, fit by fit."""
    print(f"{'where':22s}{'run':28s}{'A':>14s}{'B':>14s}{'C_mid':>16s}")
    for row in figures["rows"]:
        a, b, c = row["asymptote"], row["exponent"], row["midpoint"]
        print(
            f"{row['where']:22s}{row['run']:28s}{a[0]:7.3f}{a[1]:7.3f}{b[0]:7.2f}{b[1]:7.2f}{c[0]:8.0f}{c[1]:8.0f}"
        )
    plain({name: value for name, value in figures.items() if name != "rows"})


def paper(figures: Mapping[str, Any]) -> None:
    """Signed errors run by run, then the summary."""
    _errors(figures["rows"])
    _summary(figures["summary"])


def halves(figures: Mapping[str, Any]) -> None:
    """The table of the first halves, summed up by group."""
    _errors(figures["rows"])
    for name, summary in figures["summary"].items():
        print(f"-- {name}")
        _summary(summary)


def calibration(figures: Sequence[Mapping[str, Any]]) -> None:
    """Coverage by generator and window class, at 2 and at 10 times the window."""
    print(
        "generator  window   50 %: 2x   10x   90 %: 2x   10x   width 2x    10x  oracle 2x    10x  "
        "A missed  too early"
        "  verdicts: runs whose A is missed / runs"
    )
    for row in figures:
        (inner_2, inner_10), (outer_2, outer_10) = row["covered_50"], row["covered_90"]
        (width_2, width_10), (oracle_2, oracle_10) = row["width"], row["oracle_width"]
        missed = row["asymptote_missed_too_early"]
        wrong = row["asymptote_missed_by_verdict"]
        too_early = "" if missed is None else f"{missed:.3f}"
        print(
            f"{row['generator']:10s}{row['window']:7.1f}{inner_2:11.3f}{inner_10:6.3f}{outer_2:11.3f}{outer_10:6.3f}"
            f"{width_2:11.3f}{width_10:7.3f}{oracle_2:11.3f}{oracle_10:7.3f}{row['asymptote_missed']:10.3f}"
            f"{too_early:>11s}"
            "  "
            f"{', '.join(f'{kind} {wrong[kind]}/{runs}' for kind, runs in row['verdicts'].items())}"
        )


def targets(judged: Mapping[str, Mapping[str, Any]]) -> None:
    """One line per target, with the measures outside of it."""
    for name, target in judged.items():
        outside = f"  (outside: {', '.join(target['outside'])})" if target["outside"] else ""
        print(f"{'met   ' if target['met'] else 'MISSED'}  {name}{outside}")


def run_by_run(table: Sequence[Mapping[str, Any]]) -> str:
    """Signed errors as Markdown; of the forecast without and with the learned prior also the 90 %
    interval's.
    """
    methods = [name for name in BASELINES if name in table[0]]
    header = ["run", "points", *methods, "points alone", "learned prior"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for row in table:
        alone, learned = row["forecast"], row["forecast, learned prior"]
        # Runs without others of their family have no prior to learn.
        intervals = [_interval(alone), "" if learned == alone else _interval(learned)]
        cells = [
            row["run"],
            str(row["points"]),
            *(f"{_error(row[name]):+.3f}" for name in methods),
            *intervals,
        ]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def _error(value: float | Mapping[str, float]) -> float:
    return value["error"] if isinstance(value, Mapping) else value


def _interval(value: Mapping[str, float]) -> str:
    mark = "" if value["low"] <= 0 <= value["high"] else " *"
    return f"{value['error']:+.3f} ({value['low']:+.3f} to {value['high']:+.3f}){mark}"


def _errors(table: Sequence[Mapping[str, Any]]) -> None:
    methods = [name for name in table[0] if name not in ("run", "points", "verdict")]
    print(
        f"{'run':44s}{'n':>4s}"
        + "".join(f"{method.replace('forecast', 'fc'):>20s}" for method in methods)
    )
    for row in table:
        cells = []
        for method in methods:
            value = row[method]
            if isinstance(value, dict):
                mark = " " if value["low"] <= 0 <= value["high"] else "!"
                cells.append(
                    f"{value['error']:+.4f}{mark}w{value['high'] - value['low']:.3f}".rjust(20)
                )
            else:
                cells.append(f"{value:+.4f}".rjust(20))
        print(
            f"{row['run']:44s}{row['points']:4d}" + "".join(cells) + f"  {row.get('verdict', '')}"
        )


def _summary(summary: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{'method':28s}{'median':>9s}{'90th':>9s}{'mean':>9s}{'covered':>10s}{'width':>9s}")
    for method, figures in summary.items():
        coverage = f"{figures['covered']:.0f}/{figures['of']:.0f}" if "covered" in figures else ""
        width = f"{figures['width']:.3f}" if "width" in figures else ""
        print(
            f"{method:28s}{figures['median']:9.4f}{figures['p90']:9.4f}{figures['mean']:9.4f}{coverage:>10s}{width:>9s}"
        )
