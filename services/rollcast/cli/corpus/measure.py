"""The whole benchmark on a folder of curves, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from queue import SimpleQueue
from typing import TypeVar

from rollcast.cli.corpus.advice_scores import AdviceScores, advice_scores
from rollcast.cli.corpus.curves import CorpusCurve
from rollcast.cli.corpus.followed_advice import Ask, FollowedAdvice, HalfRun, follow, half_run
from rollcast.cli.corpus.forecast_scores import (
    ForecastScores,
    ScoredForecast,
    forecast_scores,
    make_scored_forecast,
)
from rollcast.cli.corpus.program import ForecasterProgram
from rollcast.cli.corpus.protocol import ForecasterAnswer, Question
from rollcast.cli.corpus.simple_forecasts import simple_forecasts
from rollcast.cli.corpus.single_thread import use_one_thread
from rollcast.cli.corpus.windows import Window, make_windows

Result = TypeVar("Result")
Advance = Callable[[str, int], None]
"""Called after each piece of work with the name of its stage and the number of pieces in that
stage. Any thread."""
WORTHS = (0.02, 0.05, 0.1)
"""Gains in pass rate that must pay for the rest: a cheap, a usual and an expensive run."""


@dataclass(frozen=True)
class CorpusScores:
    """Every figure of the benchmark."""

    forecast: ForecastScores
    advice: AdviceScores


def measure(
    curves: Sequence[CorpusCurve], command: Sequence[str], advance: Advance
) -> CorpusScores:
    """Ask the program `command` every question of the benchmark.

    Raises:
        UserError: the program cannot be started, ends, hangs or does not follow the protocol; or
            the curves are too few for any figure.
    """
    windows = make_windows(curves)
    runs = [run for run in map(half_run, curves) if run is not None]
    programs: list[ForecasterProgram] = []
    try:
        programs.extend(ForecasterProgram(command) for _ in range(_num_cores()))
        answers = _ask_all(
            programs, [_forecast_job(window) for window in windows], "forecasts", advance
        )
        advice_jobs = [_advice_job(run, worth) for run in runs for worth in WORTHS]
        followed = _ask_all(programs, advice_jobs, "advice", advance)
    finally:
        for program in programs:
            program.close()
    simple = _simple_forecasts(windows, advance)
    refused = [
        f"{window.source.name}, {window.cell}: {answer.refused}"
        for window, answer in zip(windows, answers, strict=True)
        if answer.refused is not None
    ]
    forecasts: list[ScoredForecast] = [
        make_scored_forecast(window, answer, by_method)
        for window, answer, by_method in zip(windows, answers, simple, strict=True)
        if answer.refused is None
    ]
    return CorpusScores(forecast_scores(forecasts, refused), advice_scores(followed))


def _forecast_job(window: Window) -> Callable[[Ask], ForecasterAnswer]:
    question = Question(
        repository=window.repository,
        metric=window.source.metric,
        curve=window.source.beginning_as_csv(window.num_seen),
        compute=tuple(window.ahead),
    )
    return lambda ask: ask(question)


def _advice_job(run: HalfRun, worth: float) -> Callable[[Ask], FollowedAdvice]:
    return lambda ask: follow(run, worth, ask)


def _ask_all(
    programs: Sequence[ForecasterProgram],
    jobs: Sequence[Callable[[Ask], Result]],
    stage: str,
    advance: Advance,
) -> list[Result]:
    """The result of each job.

    After the first failure all programs are killed, so that no job waits on.
    """
    free: SimpleQueue[ForecasterProgram] = SimpleQueue()
    for program in programs:
        free.put(program)

    def work(job: Callable[[Ask], Result]) -> Result:
        program = free.get()
        try:
            result = job(program.ask)
        finally:
            free.put(program)
        advance(stage, len(jobs))
        return result

    with ThreadPoolExecutor(len(programs), thread_name_prefix="forecaster") as threads:
        futures = [threads.submit(work, job) for job in jobs]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future.done():
                    future.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            for program in programs:
                program.kill()
            raise
        return [future.result() for future in futures]


def _simple_forecasts(windows: Sequence[Window], advance: Advance) -> list[dict[str, float]]:
    forecasts = []
    with ProcessPoolExecutor(_num_cores(), get_context("spawn"), use_one_thread) as processes:
        for forecast in processes.map(simple_forecasts, windows):
            forecasts.append(forecast)
            advance("simple methods", len(windows))
    return forecasts


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))
