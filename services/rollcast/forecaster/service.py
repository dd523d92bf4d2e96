"""The forecaster's process.

start: history loaded, last forecasts made again, HTTP served
loop:  run folder's files and source read every few seconds until SIGTERM or SIGINT; a source that
       is away is waited for
stop:  waiting requests woken, server stopped, history closed
"""

import time
from functools import partial

from rollcast.config.curve_sources import DirectScrape, FileSource, PrometheusSource
from rollcast.config.run import RunConfig
from rollcast.connections.http import Heartbeat, HttpServer, listen, local_url
from rollcast.connections.port_files import port_file, publish_port
from rollcast.curves.evaluations import Reading
from rollcast.curves.run_forecast import RunBudget
from rollcast.curves.sources.file import CurveFiles
from rollcast.curves.sources.metrics_page import MetricsPages
from rollcast.curves.sources.prometheus import PrometheusQueries
from rollcast.curves.sources.run_folder import RunFolder, history_of_folder
from rollcast.forecaster.api import build_application
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.folder_tail import FolderTail
from rollcast.forecaster.forecast_log import ForecastLog
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.push_api import PUSH_PATH, push_router
from rollcast.forecaster.schema import SourceAnswer
from rollcast.runfolder.files import FORECASTS
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.prometheus_reader import SourceAway
from rollcast.telemetry.stop_signal import StopSignal

OK = "ok"
OVER = "the run has ended"
"""The page has this sentence too, in place of `live`."""


class NoSource:
    """The source of a run that is over: its folder has everything."""

    def read(self) -> Reading:
        return Reading(away=[OVER])

    def close(self) -> None:
        """Nothing is kept open."""


EvaluationSource = PrometheusQueries | CurveFiles | MetricsPages | NoSource
"""Read every few seconds; never keeps state that a later `read` could not rebuild."""
log = get_logger()


def serve(config: RunConfig, *, over: bool = False) -> int:
    """Run until a signal; returns the exit code. `over`: the run has ended, and its folder alone is
    read.

    Raises UserError if port, certificate or history cannot be had.
    """
    stop = StopSignal()
    settings = config.forecaster
    folder = config.run_folder
    board = Board()
    metrics = ForecastMetrics(config.run)
    listener = listen(settings.bind, settings.http_port, setting="forecaster.http_port")
    served = config.http.model_copy(update={"bind": settings.bind})
    interval = settings.source.every_seconds
    # A loop that takes longer hangs: the first look may read 30 days of several runs and fit them
    # all
    heartbeat = Heartbeat(interval + 600.0)
    try:
        history = History(settings.history or folder / FORECASTS)
        engine = _make_engine(config, board, history, metrics, over=over)
        tail = FolderTail(config.run, folder)
        application = build_application(board, history, metrics, engine, tail, heartbeat)
        token = settings.push_token or config.http.token
        application.include_router(
            push_router(engine, board, None if token is None else token.get_secret_value())
        )
        http = HttpServer(application, listener, served, guarded=frozenset({PUSH_PATH}))
    except BaseException:
        listener.close()
        raise
    http.start()
    publish_port(folder, "forecaster", http.port)
    log.info("forecaster serves", page=f"{local_url(served, http.port)}/")
    source = NoSource() if over else _make_source(config)
    files = RunFolder(folder, config.run)
    forecast_log = ForecastLog(folder, metrics)
    try:
        while True:
            heartbeat.beat()
            turn_start_seconds = time.monotonic()
            engine.take(files.read())
            board.note_source(_read(source, engine, metrics, board.source))
            forecast_log.note(board.get(config.run))
            rest = interval - (time.monotonic() - turn_start_seconds)
            # Least rest of the loop after a turn, as a share of the interval, however long the turn
            # took
            if stop.wait(max(rest, 0.2 * interval)):
                return 0
    finally:
        board.closed.set()
        http.stop()
        source.close()
        history.close()


def _make_engine(
    config: RunConfig, board: Board, history: History, metrics: ForecastMetrics, *, over: bool
) -> ForecastEngine:
    """The engine with what the run file says of the runs. It makes the last forecasts again."""
    folder = config.run_folder
    source = config.forecaster.source
    budget = RunBudget(config.budget.steps, config.budget.device_hours)
    end_reasons = {}
    if over:
        run_history, _, _ = history_of_folder(folder, None)
        budget = budget.rest_after(run_history.evaluations)
        end_reasons = (
            {} if run_history.end_reason is None else {run_history.name: run_history.end_reason}
        )
    of_others = () if isinstance(source, DirectScrape) else source.curves
    terms = {curve.run: curve for curve in of_others}
    checkpoint_readers = {
        config.run: partial(KeptCheckpoints.find, folder, config.trainer.checkpoints)
    }
    return ForecastEngine(
        board, history, metrics, {config.run: budget}, terms, end_reasons, checkpoint_readers
    )


def _make_source(config: RunConfig) -> EvaluationSource:
    """The source that the run file names."""
    named = config.forecaster.source
    if isinstance(named, PrometheusSource):
        return PrometheusQueries(named.url, named.token, named.curves, named.namespace)
    if isinstance(named, FileSource):
        return CurveFiles(named.curves)
    return MetricsPages(named.urls, config.http, port_file(config.run_folder, "trainer"))


def _read(
    source: EvaluationSource,
    engine: ForecastEngine,
    metrics: ForecastMetrics,
    previous_answer: SourceAnswer,
) -> SourceAnswer:
    """One look at the source; what changed is logged."""
    try:
        reading = source.read()
    except SourceAway as error:
        metrics.source_up(False)
        if previous_answer.up or previous_answer.message != str(error):
            log.warning("the source is away; known forecasts are still served", reason=str(error))
        return SourceAnswer(up=False, message=str(error), read_at=previous_answer.read_at)
    message = reading.away[0] if reading.away else OK
    if len(reading.away) > 1:
        message += f" (and {len(reading.away) - 1} more like this)"
    if not previous_answer.up:
        log.info("the source answers")
    if reading.away and message != previous_answer.message:
        log.warning("a part of the source is away", reason=message)
    metrics.source_up(True)
    engine.take(reading)
    return SourceAnswer(up=True, message=message, read_at=time.time())
