"""The terminal dashboard: one picture of a run's state."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rollcast.config.run import RunConfig
from rollcast.local.status import ForecastReading, RunStatus
from rollcast.runfolder.records import EvaluationRecord

MAX_EVENTS = 8
_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR_WIDTH = 24


def render(config: RunConfig, status: RunStatus, events: Sequence[str], page: str | None) -> RenderableType:
    """`events`: the last lines of what happened. `page`: address of the live page, once it is there."""
    title = f"rollcast · {config.run}" + (f" · {page}" if page else "")
    return Panel(
        Group(
            _progress(config, status), _figures(status), Text(), _staleness(config, status), Text(), *map(Text, events)
        ),
        title=title,
        title_align="left",
    )


def sparkline(points: Sequence[EvaluationRecord], width: int = 40) -> str:
    """Pass rates 0 to 1 as blocks, the last `width` of them."""
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(top, max(0, round(point.pass_rate * top)))] for point in points[-width:])


def _progress(config: RunConfig, status: RunStatus) -> Table:
    budget = "" if config.budget.steps is None else f" of {config.budget.steps}"
    line = Table.grid(padding=(0, 1))
    line.add_row(
        f"step {status.step}{budget}",
        ProgressBar(total=1.0, completed=status.budget_share or 0.0, width=30),
        f"{status.compute_device_hours:.4f} device-hours",
        f"generators ready: {status.generators_ready}",
    )
    return line


def _figures(status: RunStatus) -> Table:
    table = Table.grid(padding=(0, 2))
    newest = status.evaluations[-1] if status.evaluations else None
    rate = f"{newest.pass_rate:.3f}" if newest else "no evaluation yet"
    table.add_row("pass rate", Text(f"{rate}  {sparkline(status.evaluations)}", style="bold green"))
    table.add_row("forecast", _forecast(status.forecast))
    headroom = status.forecast.headroom if status.forecast else None
    table.add_row("headroom", _interval(headroom) if headroom else "")
    table.add_row("training reward", "" if status.reward_mean is None else f"{status.reward_mean:.3f}")
    table.add_row("tokens/s", "" if status.tokens_per_second is None else f"{status.tokens_per_second:,.0f}")
    return table


def _forecast(forecast: ForecastReading | None) -> str:
    if forecast is None:
        return "too early"
    end = f"end {_interval(forecast.end)}, " if forecast.end else ""
    return f"{forecast.verdict}: {end}ceiling {_interval(forecast.asymptote)}"


def _interval(quantiles: tuple[float, float, float]) -> str:
    low, median, high = quantiles
    return f"{median:.3f} [{low:.3f}, {high:.3f}]"


def _staleness(config: RunConfig, status: RunStatus) -> Table:
    """Share of the tokens trained on in the last steps, by their age in steps."""
    table = Table.grid(padding=(0, 1))
    total = sum(status.staleness.values())
    table.add_row("staleness", "", f"bound {config.recipe.schedule.max_staleness}")
    for steps, tokens in status.staleness.items():
        share = tokens / total if total else 0.0
        table.add_row(f"{steps:>9}", "█" * max(1, round(share * _BAR_WIDTH)), f"{share:.1%}")
    return table
