"""How the runs of a set are shown while they follow one another."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rollcast.cli.views import WARNING, Follower
from rollcast.config.run import RunConfig
from rollcast.local.status import RunStatus
from rollcast.local.supervisor import RunState
from rollcast.local.up import View


class RunLines:
    """Events of one run of the set, line by line."""

    def __init__(
        self, label: str, say: Callable[[str], None], show: Callable[[RunStatus], None]
    ) -> None:
        self._label = label
        self._say = say
        self._show = show
        self._follower: Follower | None = None

    def begin(self, config: RunConfig) -> None:
        self._follower = Follower(config)

    def report(self, line: str, *, trouble: bool = False) -> None:
        self._say(f"{time.strftime('%H:%M:%S')} {self._label}: {WARNING if trouble else ''}{line}")

    def tick(self, run_state: RunState = RunState.RUNNING) -> None:
        assert self._follower is not None
        self._follower.tell(self.report)
        self._show(self._follower.status)


@contextmanager
def set_view(names: Sequence[str]) -> Iterator[Callable[[int], View]]:
    """The view for the run of each place; `names` of all runs of the set."""
    labels = [
        f"[{run_number}/{len(names)}] {name}" for run_number, name in enumerate(names, start=1)
    ]
    if not sys.stdout.isatty():
        yield lambda run_index: RunLines(
            labels[run_index], lambda line: print(line, flush=True), lambda _: None
        )
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        total_task = bar.add_task("the set", total=float(len(names)))
        task = bar.add_task("", total=1.0)

        def make_run_view(run_index: int) -> View:
            bar.reset(task, description=labels[run_index])

            def show(status: RunStatus) -> None:
                share = status.budget_share or 0.0
                rate = (
                    f", pass rate {status.evaluations[-1].pass_rate:.3f}"
                    if status.evaluations
                    else ""
                )
                bar.update(
                    task,
                    completed=share,
                    description=f"{labels[run_index]}: step {status.step}{rate}",
                )
                bar.update(total_task, completed=run_index + share)

            def say(line: str) -> None:
                bar.console.print(line, markup=False, highlight=False)

            return RunLines(labels[run_index], say, show)

        yield make_run_view
