"""`rollcast up`: one run on this machine, from its settings to its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from rollcast.local import preflight
from rollcast.local.devices import usable_gpus
from rollcast.local.embedded_redis import wait_for_embedded
from rollcast.local.monitor import Targets, find_prometheus, how_to_watch, prometheus_spec, write_monitor
from rollcast.local.process import Service, ServiceSpec
from rollcast.local.resumed import changed_settings
from rollcast.local.run_secrets import with_secrets
from rollcast.local.services import service_specs
from rollcast.local.supervisor import Doing, Ending, Supervisor
from rollcast.runfolder import folder as run_folder
from rollcast.runfolder.files import RUN_FILE, UP_FILE

INTERRUPT_SECONDS = 10.0
"""Time after the drain: an interrupted run has ended by then, unless the trainer still saves its work."""


class View(Protocol):
    """Shows the run while it goes on. No method may take long, and the run stops in order if one raises."""

    def begin(self, config: RunConfig) -> None:
        """`config` is the resolved one; the run's folder is prepared."""

    def report(self, line: str, *, trouble: bool = False) -> None:
        """`trouble`: something went wrong, and is shown before other lines."""

    def tick(self, doing: Doing = Doing.RUNNING) -> None:
        """Called some times a second, and once when all is over."""


def run_locally(
    config: RunConfig, *, resume: bool, view: View, news: Sequence[str] = (), monitor: bool = False
) -> Ending:
    """Check, start, supervise, stop. `news`: first lines of the view. `monitor`: start a Prometheus as well.

    Raises UserError for every mistake that the user can fix; no process is left running then.
    """
    config = config.model_copy(update={"folder": config.folder.absolute()})
    cautions = [f"caution: {line}" for line in preflight.check(config, monitor=monitor)]
    embed_redis = config.redis.is_embedded
    embed_grader = config.tasks.grading.sandbox == "remote" and config.grader.port == 0
    with run_folder.locked(config.run_folder):
        up_file = config.run_folder / UP_FILE
        changes = changed_settings(up_file, config) if resume else []
        run_folder.prepare(config.run_folder, resume=resume)
        write_resolved(config, up_file)
        config = preflight.resolve_ports(config, monitor=monitor)
        config = with_secrets(config, embed_redis=embed_redis, embed_grader=embed_grader)
        run_file = config.run_folder / RUN_FILE
        write_resolved(config, run_file)
        view.begin(config)
        for line in (*news, *cautions, *changes):
            view.report(line)
        specs = service_specs(
            config, run_file, embed_redis=embed_redis, resume=resume, embed_grader=embed_grader, gpus=usable_gpus()
        )
        targets = None
        if monitor:
            write_monitor(config)
            targets = Targets(config.run_folder, config.http, config.forecaster.bind)
            _add_prometheus(config.run_folder, config.local.prometheus_port, specs, view)
        made_before = run_folder.made(config.run_folder)
        supervisor = Supervisor(
            specs,
            restart_limit=config.local.restart_limit,
            interrupt_seconds=config.generator.drain_seconds + INTERRUPT_SECONDS,
            report=view.report,
            tick=lambda: _tick(view, targets, supervisor.doing),
            worth_saving=lambda: run_folder.made(config.run_folder) != made_before,
        )

        def ready(service: Service) -> None:
            if service.spec.name == "redis":
                wait_for_embedded(config.redis, service, asked_to_stop=supervisor.asked_to_stop)

        ending = supervisor.run(ready)
        view.tick(supervisor.doing)
        return ending


def _add_prometheus(run_folder: Path, port: int, specs: list[ServiceSpec], view: View) -> None:
    """Add a Prometheus to the services, if one is installed, and report how to look at it."""
    server = find_prometheus()
    if server is not None:
        specs.append(prometheus_spec(run_folder, port, server))
    for line in how_to_watch(run_folder, port, server):
        view.report(line)


def _tick(view: View, targets: Targets | None, doing: Doing) -> None:
    if targets is not None:
        targets.refresh()
    view.tick(doing)
