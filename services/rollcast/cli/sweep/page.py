"""The answer of a sweep as a page: one file without scripts, written again after each choice."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from rollcast.cli.sweep.answer import sentences, table_of_arms
from rollcast.plots.figure import COLOURS
from rollcast.runfolder.files import SWEEP_PAGE
from rollcast.runfolder.writing import replace_text

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f8; --surface: #fff; --ink: #1a1e23;
  --muted: #59626d; --line: #dfe2e6; }
@media (prefers-color-scheme: dark) { :root { --page: #0f1215; --surface: #171b20;
  --ink: #e8ebee; --muted: #9da6b0; --line: #2b3138; } }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.45 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 74rem; margin: 0 auto; padding: 1.25rem; display: grid; gap: 1rem; }
section { background: var(--surface); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem; overflow-x: auto; }
h1 { font-size: 1.15rem; margin: 0; } h2 { font-size: 2rem; margin: 0; }
p { margin: .35rem 0; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); }
svg text { fill: var(--muted); font-size: 12px; } svg .axis { stroke: var(--line); }
"""


def write_page(answer: dict[str, Any], folder: Path) -> None:
    """Raises UserError if it cannot be written."""
    replace_text(folder / SWEEP_PAGE, make_page(answer), go_on="the same command")


def make_page(answer: dict[str, Any]) -> str:
    header, rows = table_of_arms(answer)
    cells = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    first, *others = sentences(answer)
    state = "over" if answer["is_over"] else f"running: {answer['next']} trains"
    # A sweep that goes on is read again without a click
    refresh = "" if answer["is_over"] else '<meta http-equiv="refresh" content="30">'
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in others)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}'
        f"<title>Sweep {escape(answer['sweep'])}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>Sweep {escape(answer['sweep'])}, {escape(state)}</h1>"
        f"<section><h2>{escape(answer['chosen'] or 'No arm')}</h2><p>{escape(first)}</p></section>"
        f"<section>{_picture(answer)}</section>"
        f"<section><table><tr>{cells}</tr>{lines}</table></section>"
        f"<section>{words}</section></main></body></html>\n"
    )


def _picture(answer: dict[str, Any]) -> str:
    """Readings of every run over compute, and at the target each arm's band."""
    width = 900
    height = 360
    target = answer["target"]
    points = [point for arm in answer["arms"] for run in arm["runs"] for point in run["readings"]]
    levels = [arm["level"] for arm in answer["arms"] if arm["level"] is not None]
    highest = max([rate for _, rate in points] + [level["q95"] for level in levels], default=1.0)

    def x(compute: float) -> float:
        return round(40 + (width - 220) * min(compute / float(target), 1.05), 1)

    def y(rate: float) -> float:
        return round(height - 30 - (height - 50) * rate / max(float(highest), 0.01), 1)

    parts = [
        f'<line class="axis" x1="40" y1="{y(rate)}" x2="{x(target)}" y2="{y(rate)}"/>'
        f'<text x="4" y="{y(rate) + 4}">{rate:.2f}</text>'
        for rate in (0.0, highest / 2.0, highest)
    ]
    unit = answer["unit"].replace("_", "-")
    ticks = ((0.0, "0"), (target / 2.0, f"{target / 2.0:.3g}"), (target, f"{target:.3g} {unit}"))
    parts += [
        f'<text x="{x(compute) - 4}" y="{height - 8}">{label}</text>' for compute, label in ticks
    ]
    names = []
    for index, arm in enumerate(answer["arms"]):
        colour = COLOURS[index % len(COLOURS)]
        # Arms after the last colour have one again, and are dashed
        is_dashed = index >= len(COLOURS)
        stroke = f'stroke="{colour}"' + ' stroke-dasharray="5 3"' * is_dashed
        for run in arm["runs"]:
            path = " ".join(f"{x(compute)},{y(rate)}" for compute, rate in run["readings"])
            parts.append(f'<polyline fill="none" {stroke} points="{path}"/>')
        if (level := arm["level"]) is not None:
            place = x(target) + 8 + min(5.0, 150.0 / len(answer["arms"])) * index
            parts.append(
                f'<line {stroke} stroke-width="3" x1="{place}" x2="{place}" '
                f'y1="{y(level["q05"])}" y2="{y(level["q95"])}"/>'
            )
        name = escape(f"{arm['arm']} {arm['chance'] or 0.0:.2f}")
        symbol = "&#9636;" if is_dashed else "&#9632;"
        names.append(f'<span style="color:{colour}">{symbol}</span> {name}')
    label = "Pass rates over compute, and the 90 % band of each arm at the target"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {width} {height}">'
        f"{''.join(parts)}</svg><p>{label}.</p><p>{' &nbsp; '.join(names)}</p>"
    )
