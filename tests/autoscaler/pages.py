"""Metrics pages of a trainer and its generators, served as the services serve them, with figures
the test sets.
"""

from __future__ import annotations

import threading
from types import TracebackType

from rollcast.config.connections import Http
from rollcast.connections.http import HttpServer, listen, service_routes
from rollcast.telemetry import generator_metrics, trainer_metrics
from rollcast.telemetry.exporter import Exporter

RUN = "demo"


class Page:
    """One service's /metrics."""

    def __init__(self) -> None:
        self.exporter = Exporter(RUN)
        listener = listen("127.0.0.1", 0, setting="test")
        self._server = HttpServer(
            service_routes(self.exporter.render, lambda: (True, "ok")), listener, Http()
        )
        self.port = self._server.port

    def __enter__(self) -> Page:
        self._server.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.stop()


class Fleet:
    """A trainer that consumes `need` tokens a second if it gets them, from generators that give
    `each` at most.

    Both in real time; what the pages say is what a real run of such a fleet would say.
    """

    def __init__(
        self,
        trainer: Page,
        generators: list[Page],
        *,
        need: float,
        each: float,
        slots: int,
        steps_per_second: float = 5.0,
    ) -> None:
        self.generators = generators
        self.need, self.each, self.slots = need, each, slots
        self.inflight: dict[int, float] = {}
        self._trainer = trainer
        self._step_tokens = need / steps_per_second
        self._consumed = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)

    def __enter__(self) -> Fleet:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(5)

    def _go(self) -> None:
        seconds = 0.05
        step, tokens = 100, 0.0
        trainer = self._trainer.exporter
        trainer.set(trainer_metrics.INCARNATION, 1)
        trainer.set(trainer_metrics.INCARNATION_START, 0, incarnation="1")
        while True:
            at_work, need = (
                list(self.generators),
                self.need,
            )  # the test changes both while this runs
            sampled = min(need, len(at_work) * self.each)
            for number, page in enumerate(at_work):
                page.exporter.add(
                    generator_metrics.SAMPLED_TOKENS, sampled / len(at_work) * seconds
                )
                page.exporter.set(
                    generator_metrics.RUNNING_ROLLOUTS,
                    self.slots * sampled / (len(at_work) * self.each),
                )
                page.exporter.set(
                    generator_metrics.INFLIGHT_TOKENS, self.inflight.get(number, 100.0 * number)
                )
            trainer.add(
                trainer_metrics.TRAINER_WAIT, seconds * (1 - sampled / need), **{"for": "batch"}
            )
            trainer.set(trainer_metrics.GENERATORS, len(at_work), state="joined")
            trainer.set(trainer_metrics.COMPLETION_TOKENS_MEAN, 1_000.0)
            trainer.set(trainer_metrics.GROUPS_OUTSTANDING, 10)
            tokens += sampled * seconds
            while tokens >= self._step_tokens:
                tokens -= self._step_tokens
                step += 1
                trainer.add(trainer_metrics.CONSUMED_TOKENS, self._step_tokens)
            trainer.set(trainer_metrics.TRAINER_STEP, step)
            if self._stop.wait(seconds):
                return
