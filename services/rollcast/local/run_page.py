"""The live page of a run that is over, served again from a copy: nothing in its folder changes."""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcast.config.errors import PassingError, UserError
from rollcast.config.resolved import write_resolved
from rollcast.config.run import load_run_config
from rollcast.connections.http import local_url
from rollcast.connections.port_files import port_file, read_port
from rollcast.local.process import Command, Service, ServiceSpec
from rollcast.runfolder import files

READ = (
    files.EVALUATIONS,
    files.INCARNATIONS,
    files.STEPS,
    files.SAMPLES,
    files.TASKS,
    files.EVENTS,
    files.FORMAT,
    files.BEFORE,
    files.UP_FILE,
    files.CHECKPOINTS,
    files.RECORDED,
)
CHANGED = (files.FORECASTS, f"{files.FORECASTS}-wal", files.FORECASTS_SAID)
"""Files that a forecaster writes."""
START_SECONDS = 120.0
"""A forecaster serves some seconds after its start, and fits a long run first."""
POLL_SECONDS = 0.1


@contextmanager
def served_page(run_folder: Path) -> Iterator[tuple[str, Service]]:
    """Address of the page and the process that serves it, which ends with this context.

    Raises UserError for a run without a curve, PassingError if the page is not served in time.
    """
    config = load_run_config(run_folder / files.RUN_FILE, dropped=[])
    with tempfile.TemporaryDirectory(prefix="rollcast-page-") as folder:
        copy = config.model_copy(
            update={
                "folder": Path(folder),
                "run": run_folder.name,
                "forecaster": config.forecaster.model_copy(
                    update={"http_port": 0, "history": None}
                ),
            }
        )
        _copy_records(run_folder, copy.run_folder)
        write_resolved(copy, copy.run_folder / files.RUN_FILE)
        arguments = ("--config", str(copy.run_folder / files.RUN_FILE), "--over")
        program = (sys.executable, "-m", "rollcast.forecaster", *arguments)
        command = Command(program, copy.run_folder / "forecaster.log")
        service = Service(ServiceSpec("forecaster", (command,), stop_order=0, stop_seconds=0.0))
        service.start()
        try:
            port = _port(service, port_file(copy.run_folder, "forecaster"))
            yield (
                local_url(config.http.model_copy(update={"bind": config.forecaster.bind}), port),
                service,
            )
        finally:
            service.kill()


def _copy_records(run_folder: Path, copy: Path) -> None:
    copy.mkdir()
    for name in READ:
        (copy / name).symlink_to(run_folder.absolute() / name)
    for name in CHANGED:
        if (run_folder / name).exists():
            shutil.copyfile(run_folder / name, copy / name)


def _port(service: Service, file: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if service.poll() is not None:
            raise UserError(service.last_words())
        try:
            return read_port(file)
        except (OSError, ValueError):
            time.sleep(POLL_SECONDS)
    raise PassingError(
        f"the page is not served within {START_SECONDS:g} s; try again when the machine is less "
        "busy"
    )
