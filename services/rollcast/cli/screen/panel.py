"""A run's picture for a screen of any size: what matters most has room first, and no line is left
to the terminal.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from rollcast.cli.screen import figures
from rollcast.cli.screen.curve import draw_curve
from rollcast.cli.verifier_news import newest_of_each
from rollcast.config.run import RunConfig
from rollcast.local.status import RunStatus
from rollcast.runfolder.event_log import RunEvent

BAR_COLUMNS = 20
GAP = " · "


@dataclass(frozen=True, slots=True)
class Screen:
    """All that is shown."""

    config: RunConfig
    status: RunStatus
    events: Sequence[RunEvent]
    state: str
    """Running for how long, finished, stopped: in words."""
    page: str | None
    """Address of the live page, once it is there."""
    now_seconds: float
    """Unix seconds."""
    is_running: bool = True


def panel(screen: Screen, width: int, height: int) -> Text:
    """The screen as at most `height` lines of at most `width` columns."""
    events = _events(screen.events, width)
    # On the smallest of screens: an error is seen whatever else is not
    min_event_lines = min(len(events), 2)
    head = [*_head(screen, width), *_body(screen, width)][: max(1, height - min_event_lines)]
    room = height - len(head)
    # Four lines for events next to a curve, and a fifth of a high screen
    reserved_lines = min(len(events), max(4, height // 5))
    # More lines make a curve no clearer
    curve_lines = min(20, room - reserved_lines)
    curve = []
    # Lines below which a curve shows nothing
    if curve_lines >= 7:
        curve = draw_curve(
            screen.status.evaluations, figures.find_forecast(screen.status), width, curve_lines
        )
    lines = [*head, *curve, *events[: max(0, room - len(curve))]][:height]
    return Text("\n").join(lines)


def _head(screen: Screen, width: int) -> list[Text]:
    name = Text(f"rollcast {screen.config.run}", "bold")
    rest = [screen.state, *([screen.page] if screen.page else [])]
    first, *more = flow([name.plain, *rest], width)
    line = Text(first)
    line.stylize("bold", 0, len(name))
    return [line, *map(Text, more)]


def _body(screen: Screen, width: int) -> list[Text]:
    config = screen.config
    status = screen.status
    if status.phases and not status.is_started and screen.state.startswith("starting"):
        lines = [*_phases(screen, width), *map(Text, flow(figures.came_back(status), width))]
    else:
        lines = [Text(line) for line in _progress(config.budget.steps, status, width)]
        if screen.is_running:
            lines += map(Text, flow(figures.coming(status, screen.now_seconds), width))
    max_staleness = config.recipe.schedule.max_staleness
    work = figures.work(
        status, config.local.generators, max_staleness, is_running=screen.is_running
    )
    lines += map(Text, flow(work, width))
    lines += [Text(line, "green") for line in flow(figures.evaluation_words(status), width)]
    lines += map(Text, flow(status.episodes, width))
    lines += [
        Text(line, "yellow") for line in flow(figures.forecast_words(status), width, "forecast  ")
    ]
    if advice := figures.advice_words(status):
        lines += [Text(line, "bold") for line in _wrap_line(f"advice    {advice}", width, 10)]
    return lines


def _phases(screen: Screen, width: int) -> list[Text]:
    """Done, under way, to come: in three ways that need no colour."""
    marks = []
    for phase in screen.status.phases:
        mark = "·"
        if phase.done_at is not None:
            mark = "✓"
        elif phase.started_at is not None:
            mark = "▸"
        marks.append(f"{mark} {figures.phase_words(phase, screen.now_seconds)}")
    return [Text(line) for line in flow(marks, width, gap="   ")]


def _progress(budget_steps: int | None, status: RunStatus, width: int) -> list[str]:
    share = status.budget_share
    if share is None:
        return flow([figures.step_words(budget_steps, status), "no end is set"], width)
    filled = round(share * BAR_COLUMNS)
    bar = "█" * filled + "░" * (BAR_COLUMNS - filled)
    return flow([figures.step_words(budget_steps, status), f"{bar} {share:.0%}"], width)


def _events(events: Sequence[RunEvent], width: int) -> list[Text]:
    """The newest first of each kind, troubles before the rest, so that the least important ones are
    cut off.
    """
    events = newest_of_each(events)
    # The newest of them are shown above the other events
    troubles = [event for event in events if event.trouble][-3:]
    other_events = [event for event in events if event not in troubles]
    lines = []
    for event in [*reversed(troubles), *reversed(other_events)]:
        mark, style = ("!", "bold red") if event.trouble else (" ", "")
        text = f"{mark} {event.local_time} {event.line}"
        lines += [Text(line, style) for line in _wrap_line(text, width, 11)]
    return lines


def flow(items: Sequence[str], width: int, start: str = "", gap: str = GAP) -> list[str]:
    """The items side by side as far as they fit, and on further lines, indented below `start`."""
    lines: list[str] = []
    line = start
    for item in items:
        if line.strip() and line != start:
            if cell_len(f"{line}{gap}{item}") <= width:
                line += f"{gap}{item}"
                continue
            lines.append(line)
            line = " " * len(start)
        line += item
    if line.strip():
        lines.append(line)
    return [wrapped_line for line in lines for wrapped_line in _wrap_line(line, width, len(start))]


def _wrap_line(line: str, width: int, indent: int) -> list[str]:
    if cell_len(line) <= width:
        return [line]
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * min(indent, width // 3),
        break_on_hyphens=False,
        drop_whitespace=True,
    )
