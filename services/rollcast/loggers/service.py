"""The loggers' process: a thread for each destination, probes and metrics over HTTP.

    the trainer and the forecaster write the run folder
        --> a thread for each of `log` --> TensorBoard, MLflow, W&B

No other process waits for it, so a server that is away or hangs does not delay the run. At SIGTERM
the remaining entries are sent, within FINISH_SECONDS.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any

from rollcast.config.loggers import Log, MlflowLog, TensorBoardLog
from rollcast.config.run import RunConfig
from rollcast.connections.http import HttpServer, listen, service_routes
from rollcast.connections.port_files import publish_port
from rollcast.loggers.entries import Destination
from rollcast.loggers.forwarder import Forwarder
from rollcast.runfolder.files import TENSORBOARD
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.stop_signal import StopSignal

FINISH_SECONDS = 20.0
"""Time for the remaining entries at the end of the run. Others are sent when the run is resumed."""
log = get_logger()


def serve(config: RunConfig) -> int:
    """Run until a signal; returns the exit code. Raises UserError if no port is free."""
    stop = StopSignal()
    exporter = Exporter(config.run)
    listener = listen(config.http.bind, 0, setting="http.bind")
    http = HttpServer(service_routes(exporter.render, lambda: (True, "ok")), listener, config.http)
    http.start()
    publish_port(config.run_folder, "loggers", http.port)
    folder = config.run_folder
    settings = config.model_dump(mode="json")  # secrets are hidden
    forwarders = [
        Forwarder(item.kind, folder, partial(open_destination, item, folder, settings), exporter)
        for item in config.log
    ]
    for forwarder in forwarders:
        forwarder.start()
    stop.wait()
    for forwarder in forwarders:
        forwarder.stop()
    deadline = time.monotonic() + FINISH_SECONDS
    for forwarder in forwarders:
        forwarder.join(max(0.0, deadline - time.monotonic()))
        if not forwarder.done:
            log.warning(
                "the run is not wholly logged; the rest is sent when it is resumed",
                logger=forwarder.name,
            )
    http.stop()
    return 0


def open_destination(
    item: Log, run_folder: Path, settings: dict[str, Any], run_id: str | None
) -> Destination:
    """The destination of an entry of `log`. Only the package of its kind is imported.

    `settings`: the run file's, without secrets. `run_id`: the destination's id from an earlier
    process.
    """
    run = run_folder.name
    if isinstance(item, TensorBoardLog):
        from rollcast.loggers.tensorboard_files import TensorBoardFiles

        return TensorBoardFiles(item.folder or run_folder / TENSORBOARD, settings)
    if isinstance(item, MlflowLog):
        from rollcast.loggers.mlflow_run import MlflowRun

        return MlflowRun(item, run, settings, run_id)
    from rollcast.loggers.wandb_run import WandbRun

    return WandbRun(item, run, run_folder, settings, run_id)
