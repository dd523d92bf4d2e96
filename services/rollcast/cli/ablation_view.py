"""How a set of runs is shown: a bar over the set and one for the run under way; plain lines if there is no terminal."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rollcast.cli.views import Follower
from rollcast.config.run import RunConfig
from rollcast.local.status import RunStatus
from rollcast.local.supervisor import Doing
from rollcast.local.up import View


class RunLines:
    """What happens in one run of the set, line by line."""

    def __init__(self, label: str, say: Callable[[str], None], show: Callable[[RunStatus], None]) -> None:
        self._label = label
        self._say = say
        self._show = show
        self._follower = Follower()

    def begin(self, config: RunConfig) -> None:
        self._follower.begin(config)

    def report(self, line: str, *, trouble: bool = False) -> None:
        self._say(f"{time.strftime('%H:%M:%S')} {self._label}: {'error: ' if trouble else ''}{line}")

    def tick(self, doing: Doing = Doing.RUNNING) -> None:
        self._follower.tell(self.report)
        self._show(self._follower.status)


@contextmanager
def set_view(names: Sequence[str]) -> Iterator[Callable[[int], View]]:
    """What shows the run of each place; `names` of all runs of the set."""
    labels = [f"[{place}/{len(names)}] {name}" for place, name in enumerate(names, start=1)]
    if not sys.stdout.isatty():
        yield lambda place: RunLines(labels[place], lambda line: print(line, flush=True), lambda _: None)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        whole = bar.add_task("the set", total=float(len(names)))
        task = bar.add_task("", total=1.0)

        def view_of(place: int) -> View:
            bar.reset(task, description=labels[place])

            def show(status: RunStatus) -> None:
                share = status.budget_share or 0.0
                rate = f", pass rate {status.evaluations[-1].pass_rate:.3f}" if status.evaluations else ""
                bar.update(task, completed=share, description=f"{labels[place]}: step {status.step}{rate}")
                bar.update(whole, completed=place + share)

            def say(line: str) -> None:
                bar.console.print(line, markup=False, highlight=False)

            return RunLines(labels[place], say, show)

        yield view_of
