"""A forecast as SVG: a badge for a README, and a picture of the curve for a report or a dashboard.

Colours adapt to the reader's light or dark scheme; names and sentences are text, never markup.
"""

from __future__ import annotations

from html import escape

import numpy as np

from rollcast.curves.run_forecast import RunForecast
from rollcast.scaling.decisions.advice import DESCRIBED, AdviceKind
from rollcast.scaling.law.curve import Array

COLOURS = {AdviceKind.CONTINUE: "#1b7a43", AdviceKind.WAIT: "#9a5b00", AdviceKind.STOP: "#1d5fd1"}
"""White text on each has a contrast above 4.5."""
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 64, 44
PLACES = 81
LETTER = 6.6
"""Width of a letter of the badge's 11 px Verdana, on average."""
_STYLE = (
    ".rollcast text{font:13px system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1a1e23}"
    ".rollcast .muted{fill:#59626d;font-size:12px}"
    ".rollcast .head{font-size:17px;font-weight:600}"
    ".ground{fill:#fff}.grid{stroke:#dfe2e6}.band{fill:#1d5fd1;opacity:.16}"
    ".law{fill:none;stroke:#1d5fd1;stroke-width:2}.point{fill:#1a1e23}.end{stroke:#59626d;stroke-dasharray:2 3}"
    "@media(prefers-color-scheme:dark){.rollcast text{fill:#e8ebee}"
    ".rollcast .muted{fill:#9da6b0}.ground{fill:#171b20}.grid{stroke:#2b3138}"
    ".band{fill:#79aaff}.law{stroke:#79aaff}.point{fill:#e8ebee}.end{stroke:#9da6b0}}"
)


def badge(item: RunForecast) -> str:
    """`rollcast | Continue, 0.643 to 0.671`: the advice and where the run ends (90 %)."""
    advice = item.advice()
    low, high = item.reading([advice.budget], (0.05, 0.95))[:, 0]
    right = advice.headline if advice.rest.gain is None else f"{advice.headline}, ends {low:.3f} to {high:.3f}"
    first, second = round(LETTER * 8 + 12), round(LETTER * len(right) + 14)
    name = escape(f"rollcast: {right}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20" role="img" aria-label="{name}">'
        f"<title>{name}</title>"
        f'<clipPath id="round"><rect width="{first + second}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#round)"><rect width="{first}" height="20" fill="#444b53"/>'
        f'<rect x="{first}" width="{second}" height="20" fill="{COLOURS[advice.kind]}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{first / 2}" y="14">rollcast</text>'
        f'<text x="{first + second / 2}" y="14">{escape(right)}</text></g></svg>'
    )


def picture(item: RunForecast) -> str:
    """Points, 90 % band and the law, where one describes the run, until the end of the budget; headed by the advice."""
    advice = item.advice()
    points = [(e.compute, e.pass_rate) for e in item.evaluations]
    stop = max(advice.budget, item.newest.compute) * 1.03
    compute = np.linspace(stop / 1000, stop, PLACES)
    low, high = item.reading(compute, (0.05, 0.95))
    law = item.law(compute, (0.5,))[0]
    has_law = item.forecast.verdict.kind in DESCRIBED
    seen = np.concatenate([law if has_law else [], high[-1:], low[-1:], [rate for _, rate in points]])
    bottom, top = max(0.0, np.floor(10 * seen.min()) / 10), min(1.0, np.ceil(10 * seen.max()) / 10)
    top = max(top, bottom + 0.1)

    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * value / stop, 1)

    def y(value: float) -> float:
        inside = min(max((value - bottom) / (top - bottom), 0.0), 1.0)
        return round(float(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * inside), 1)

    def path(values: Array, at: Array = compute) -> str:
        return " ".join(f"{x(float(c))},{y(float(v))}" for c, v in zip(at, values, strict=True))

    band = f"{path(high)} {path(low[::-1], compute[::-1])}"
    line = f'<polyline class="law" points="{path(law)}"/>' if has_law else ""
    dots = "".join(f'<circle class="point" cx="{x(c)}" cy="{y(rate)}" r="3"/>' for c, rate in points)
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rate)}" y2="{y(rate)}"/>'
        f'<text class="muted" x="{LEFT - 8}" y="{y(rate) + 4}" text-anchor="end">{rate:.1f}</text>'
        for rate in np.arange(round(10 * bottom), round(10 * top) + 1) / 10
    )
    ticks = "".join(
        f'<text class="muted" x="{x(value)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:.4g}</text>'
        for value in (0.0, advice.budget / 2, advice.budget)
    )
    end = x(advice.budget)
    title = escape(f"{item.name}: {advice.headline}. {advice.reason}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rollcast" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{title}">'
        f"<title>{title}</title><style>{_STYLE}</style>"
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
        f'<text class="head" x="16" y="28">{escape(_short(f"{item.name}: {advice.headline}", 70))}</text>'
        f'<text class="muted" x="16" y="48">{escape(_short(advice.reason, 108))}</text>'
        f'{lines}<polygon class="band" points="{band}"/>{line}{dots}'
        f'<line class="end" x1="{end}" x2="{end}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>{ticks}'
        f'<text class="muted" x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(item.unit)}</text>'
        "</svg>"
    )


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
