"""The activity of a run on this machine: read from its folder and from the metrics pages of its
services.
"""

import time
from collections import Counter, deque
from dataclasses import dataclass, field

import httpx

from rollcast.config.run import RunConfig
from rollcast.connections import http
from rollcast.connections.http import ONE_LOOK
from rollcast.connections.port_files import port_file, read_port
from rollcast.local.devices import num_devices
from rollcast.local.forecast_reading import ForecastReading, Page, first_value, forecast_on_page
from rollcast.local.progress import RECENT_STEPS, Pace, Phase, StartUp, estimate_pace
from rollcast.runfolder import files
from rollcast.runfolder.episode_words import episodes_in_words
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, IncarnationRecord, StepRecord
from rollcast.runfolder.survival import is_complete, surviving
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from rollcast.telemetry.prometheus_reader import SourceAway, parse_page


@dataclass(frozen=True, slots=True)
class RunStatus:
    step: int = 0
    budget_share: float | None = None
    """0 to 1; None without a budget."""
    evaluated_share: float | None = None
    """Share of the budget used at the newest evaluation."""
    reward_mean: float | None = None
    episodes: tuple[str, ...] = ()
    """The episodes of the newest batch in words; empty without any."""
    compute_device_hours: float = 0.0
    evaluations: tuple[EvaluationRecord, ...] = ()
    """Evaluations of the surviving history by step, without the incomplete ones, as the forecast
    uses them."""
    num_incomplete: int = 0
    """Surviving evaluations with too few prompts graded."""
    staleness: dict[int, int] = field(default_factory=dict)
    """Tokens trained on in the last steps, by how many steps old they were."""
    tokens_per_second: float | None = None
    """Generated tokens that reached the trainer."""
    generators_ready: int = 0
    forecast: ForecastReading | None = None
    phases: tuple[Phase, ...] = ()
    """Phases of the newest start; empty if no start is known."""
    is_started: bool = False
    """Whether the newest start has made a step."""
    stepped_at: float | None = None
    """When it made its last step, in Unix seconds."""
    waits_for: str | None = None
    """The service without which no step can be made, while it does not work."""
    pace: Pace | None = None
    group_signals: dict[str, int] = field(default_factory=dict)
    """Training groups that came back since the trainer was started, by their signal."""


class StatusReader:
    """Reads the new records at each call."""

    def __init__(
        self, config: RunConfig, *, one_look: bool = False, is_running: bool = True
    ) -> None:
        """`one_look`: it is read once, and no service waits at its end for another reading.
        `is_running`: otherwise no port is asked, which may belong to another process by now."""
        self._config = config
        self._is_running = is_running
        self._folder = config.run_folder
        self._open()
        self._start_up = StartUp(self._folder)
        self._tokens: deque[tuple[float, float]] = deque()
        self._client = http.client(
            # The screen is drawn again within a second
            timeout_seconds=1.0,
            token=config.http.token,
            tls=config.http.tls,
            name=ONE_LOOK if one_look else "rollcast",
        )

    def _open(self) -> None:
        self._step_file = RecordFile(self._folder / files.STEPS, StepRecord)
        self._evaluation_file = RecordFile(self._folder / files.EVALUATIONS, EvaluationRecord)
        self._incarnation_file = RecordFile(self._folder / files.INCARNATIONS, IncarnationRecord)
        self._starts: dict[int, int] = {}
        self._evaluations: list[EvaluationRecord] = []
        # The staleness histogram shows the last steps
        self._recent: deque[StepRecord] = deque(maxlen=max(50, RECENT_STEPS + 1))

    def _catch_up(self) -> None:
        """Read the new lines of the files; every line, if a file was replaced."""
        self._read_files()
        if any(
            file.was_written_anew
            for file in (self._step_file, self._evaluation_file, self._incarnation_file)
        ):
            self._open()
            self._read_files()

    def read(self) -> RunStatus:
        self._catch_up()
        trainer = self._page("trainer")
        newest = self._recent[-1] if self._recent else None
        step = int(
            first_value(trainer, trainer_metrics.TRAINER_STEP) or (newest.step if newest else 0)
        )
        compute = sum(value for _, value in trainer.get(trainer_metrics.COMPUTE_STATE.name, []))
        compute = compute or (
            self._evaluations[-1].compute_device_hours if self._evaluations else 0.0
        )
        evaluations = [item for item in self._evaluations if is_complete(item.graded_share)]
        last = evaluations[-1] if evaluations else None
        ready = int(first_value(trainer, trainer_metrics.GENERATORS, state="ready") or 0)
        began = self._start_up.began_at
        steps_since_start = [
            record
            for record in self._recent
            if began is not None and record.at is not None and record.at >= began
        ]
        missing_service = "a generator" if trainer else "the trainer"
        return RunStatus(
            step=step,
            budget_share=self._budget_share(step, compute),
            evaluated_share=self._budget_share(last.step, last.compute_device_hours)
            if last
            else None,
            reward_mean=newest.reward_mean if newest else None,
            episodes=episodes_in_words(newest) if newest else (),
            compute_device_hours=compute,
            evaluations=tuple(evaluations),
            num_incomplete=len(self._evaluations) - len(evaluations),
            staleness=self._staleness(),
            tokens_per_second=self._token_rate(
                first_value(trainer, trainer_metrics.TOKENS, role="generator")
            ),
            generators_ready=ready,
            forecast=forecast_on_page(self._page("forecaster")),
            phases=self._start_up.phases(
                is_ready=ready > 0,
                stepped_at=steps_since_start[0].at if steps_since_start else None,
            ),
            is_started=bool(steps_since_start),
            stepped_at=steps_since_start[-1].at if steps_since_start else None,
            waits_for=missing_service if steps_since_start and not ready else None,
            pace=estimate_pace(
                steps_since_start,
                self._config.budget,
                every_steps=self._config.tasks.evaluation.every_steps,
                num_devices=num_devices(self._config.local, self._config.generator),
                compute_device_hours=compute,
            ),
            group_signals={
                labels.get("signal", ""): int(count)
                for labels, count in trainer.get(trainer_metrics.GROUP_SIGNALS.name, [])
            },
        )

    @property
    def num_skipped(self) -> int:
        """Lines of the run's files that were no records, so far."""
        return self._evaluation_file.num_skipped + self._step_file.num_skipped

    def url(self, service: str) -> str | None:
        """Address at which the service serves HTTP; None until it does."""
        try:
            port = read_port(port_file(self._folder, service))
        except (OSError, ValueError):
            return None
        settings = self._config.http
        if service == "forecaster":
            settings = settings.model_copy(update={"bind": self._config.forecaster.bind})
        return http.local_url(settings, port)

    def _read_files(self) -> None:
        self._recent.extend(self._step_file.read())
        new = [
            item
            for item in self._evaluation_file.read()
            if evaluation_metrics.is_own_curve(item.dataset)
        ]
        self._starts |= {
            item.incarnation: item.started_from for item in new if item.started_from is not None
        }
        self._starts |= {
            began.incarnation: began.started_from for began in self._incarnation_file.read()
        }
        self._evaluations = surviving([*self._evaluations, *new], self._starts)

    def _page(self, service: str) -> Page:
        url = self.url(service) if self._is_running else None
        if url is None:
            return {}
        page: Page = {}
        try:
            text = self._client.get(f"{url}/metrics").raise_for_status().text
            # A larger page of metrics is not of this run
            for sample in parse_page(text) if len(text) <= (4 << 20) else ():
                if (
                    sample.labels.get("run") == self._config.run
                ):  # a forecaster's page may hold several runs
                    page.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
        except (httpx.HTTPError, SourceAway):
            return {}
        return page

    def _budget_share(self, step: int, compute: float) -> float | None:
        budget = self._config.budget
        shares = [step / budget.steps] if budget.steps is not None else []
        if budget.device_hours is not None:
            shares.append(compute / budget.device_hours)
        return min(1.0, max(shares)) if shares else None

    def _staleness(self) -> dict[int, int]:
        counts: Counter[int] = Counter()
        for record in self._recent:
            counts.update(record.staleness_tokens)
        return dict(sorted(counts.items()))

    def _token_rate(self, num_trained_tokens: float | None) -> float | None:
        now_seconds = time.monotonic()
        if num_trained_tokens is None:
            return None
        if self._tokens and num_trained_tokens < self._tokens[-1][1]:
            self._tokens.clear()  # the trainer was started again
        self._tokens.append((now_seconds, num_trained_tokens))
        # Tokens per second are counted over this time
        while len(self._tokens) > 2 and now_seconds - self._tokens[0][0] > 10.0:
            self._tokens.popleft()
        start, first_count = self._tokens[0]
        end, last_count = self._tokens[-1]
        return (last_count - first_count) / (end - start) if end > start else None
