"""`rollcast up`: one run on this machine, from its settings to its end."""

import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretStr

from rollcast.config.connections import Redis, Rpc
from rollcast.config.custom_function_digests import with_digests
from rollcast.config.errors import UserError
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from rollcast.config.services import Grader
from rollcast.curves.sources.run_terms import early_end
from rollcast.local import preflight, shared_gpu
from rollcast.local.custom_function_copies import with_copies
from rollcast.local.devices import usable_gpus, with_gpus
from rollcast.local.earlier_checkpoint import go_back
from rollcast.local.embedded_redis import listening, wait_for_embedded
from rollcast.local.kept_settings import undone_if_refused
from rollcast.local.monitor import Targets, how_to_watch, prometheus_spec, write_monitor
from rollcast.local.process import Service, ServiceSpec
from rollcast.local.resumed import changes_since_start
from rollcast.local.services import service_specs
from rollcast.local.supervisor import RunState, Supervisor
from rollcast.memory.device import smallest_gpu
from rollcast.runfolder import folder as run_folder
from rollcast.runfolder.files import REDIS, RUN_FILE, UP_FILE, checkpoint_place


class View(Protocol):
    """Shows the run while it goes on.

    No method may take long, and the run stops in order if one raises.
    """

    def begin(self, config: RunConfig) -> None:
        """`config` is the resolved one; the run's folder is prepared."""

    def report(self, line: str, *, trouble: bool = False) -> None:
        """`trouble`: something went wrong, and is shown before other lines."""

    def tick(self, run_state: RunState = RunState.RUNNING) -> None:
        """Called some times a second, and once when all is over."""


class RunDeadlineError(RuntimeError):
    """The run took longer than it may."""


class RunPausedError(RuntimeError):
    """Raised by a view's `tick`: the run stops in order, with a checkpoint, to be resumed later."""


def run_locally(
    config: RunConfig,
    *,
    resume: bool,
    step: int | None = None,
    view: View,
    news: Sequence[str] = (),
    monitor: bool = False,
    max_seconds: float | None = None,
) -> RunState:
    """Check, start, supervise, stop; returns FINISHED, STOPPED after an interrupt, or PAUSED if the
    view asked for it.

    `step`: of the kept checkpoint to go on from; None = the newest. `news`: first lines of the
    view. `monitor`: start a Prometheus as well. Raises UserError for every mistake that the user
    can fix, and RunDeadlineError after `max_seconds`; no process is left running then.
    """
    started_at = time.monotonic()
    config = config.model_copy(
        update={"folder": config.folder.absolute(), "recipe": with_digests(config.recipe)}
    )
    warnings = preflight.check(config, monitor=monitor, resume=resume)
    cautions = [f"caution: {line}" for line in warnings]
    portable_config = config
    gpus = usable_gpus()[: config.local.gpus]
    config = config.model_copy(update={"local": with_gpus(config.local, gpus)})
    if config.local.shares_gpu and (device := smallest_gpu()) is not None:
        config = shared_gpu.divide_gpu(config, device).config
        news = (*news, shared_gpu.in_words(config.weights, config.generator))
    embed_redis = config.redis.is_embedded
    embed_grader = config.tasks.grading.sandbox == "remote" and config.grader.port == 0
    checkpoints = checkpoint_place(config.run_folder, config.trainer.checkpoints)
    with run_folder.lock_folder(config.run_folder), undone_if_refused(config.run_folder) as undo:
        changes = changes_since_start(config.run_folder, portable_config) if resume else []
        if step is not None:
            changes += go_back(checkpoints, step, undo)
        run_folder.prepare(config.run_folder, resume=resume)
        # Without this machine's GPUs: the run may go on on another.
        copies = {"recipe": with_copies(config.recipe, config.run_folder)}
        write_resolved(portable_config.model_copy(update=copies), config.run_folder / UP_FILE)
        config = config.model_copy(update=copies)
        config = preflight.resolve_ports(config, monitor=monitor)
        config = with_secrets(config, embed_redis=embed_redis, embed_grader=embed_grader)
        write_resolved(config, config.run_folder / RUN_FILE)
        view.begin(config)
        for line in (*news, *cautions, *changes):
            view.report(line)
        specs = service_specs(
            config,
            config.run_folder / RUN_FILE,
            embed_redis=embed_redis,
            resume=resume,
            step=step,
            embed_grader=embed_grader,
            gpus=gpus,
        )
        services = LocalServices(config, specs, view)
        targets = services.add_monitor() if monitor else None
        return services.supervise(_ticker(view, targets, started_at, max_seconds))


def _ticker(
    view: View, targets: Targets | None, started_at: float, max_seconds: float | None
) -> Callable[[RunState], None]:
    """The call of some times a second; it raises RunDeadlineError `max_seconds` after
    `started_at`.
    """

    def tick(run_state: RunState) -> None:
        if max_seconds is not None and time.monotonic() > started_at + max_seconds:
            raise RunDeadlineError(f"took longer than {max_seconds:.0f} s and was stopped")
        if targets is not None:
            targets.refresh()
        view.tick(run_state)

    return tick


@dataclass(frozen=True, slots=True)
class LocalServices:
    """The services of one run, whose files are written, until they have ended."""

    config: RunConfig
    specs: list[ServiceSpec]
    view: View

    def add_monitor(self) -> Targets:
        """Write the monitor's folder, add a Prometheus to the services, if one is installed, and
        report how to look at it.
        """
        config = self.config
        write_monitor(config)
        port = config.local.prometheus_port
        server = shutil.which("prometheus")
        if server is not None:
            self.specs.append(prometheus_spec(config.run_folder, port, server))
        for line in how_to_watch(config.run_folder, port, server):
            self.view.report(line)
        return Targets(config.run_folder, config.http, config.forecaster.bind)

    def supervise(self, tick: Callable[[RunState], None]) -> RunState:
        """Start them, keep them alive and stop them; how the run ended."""
        config = self.config
        folder = config.run_folder
        made_before = run_folder.history_file_sizes(folder)
        # Time after the drain: an interrupted run has ended by then, unless the trainer still saves
        # its work
        seconds = config.generator.drain_seconds + 10.0
        supervisor: Supervisor = Supervisor(
            self.specs,
            # Within ten minutes, chosen: what brings a process down more often is no accident
            restart_limit=5,
            interrupt_seconds=seconds,
            report=self.view.report,
            tick=lambda: tick(supervisor.run_state),
            worth_saving=lambda: run_folder.history_file_sizes(folder) != made_before,
        )

        def ready(service: Service) -> None:
            if service.spec.name == "redis":
                wait_for_embedded(config.redis, service, asked_to_stop=supervisor.asked_to_stop)

        try:
            ending = supervisor.run(ready)
        except RunPausedError:
            return RunState.STOPPED if supervisor.asked_to_stop() else RunState.PAUSED
        if ending is RunState.FINISHED and (reason := early_end(folder)) is not None:
            # Here, because it imports scipy.
            from rollcast.curves.best_checkpoint import KeptLevels, best_in_words

            with suppress(UserError):  # no checkpoint on this machine
                reason = f"{reason}. {best_in_words(KeptLevels.from_folder(folder).levels)}"
            self.view.report(f"`stop_when` ended the run: {reason}")
        tick(supervisor.run_state)
        return ending


def with_secrets(config: RunConfig, *, embed_redis: bool, embed_grader: bool) -> RunConfig:
    """`config` with a random secret for each service of the run whose secret the user has not set.

    It is another one at each start, kept in run.json of the run folder, which only the user can
    read; every command takes it from there. That of Redis is the generators': the trainer's is in
    the environment of its processes. The embedded Redis also gets its socket. A Redis or a grader
    that the user runs keeps what the user has set.
    """
    updates: dict[str, Redis | Rpc | Grader] = {
        "rpc": config.rpc.model_copy(update={"token": config.rpc.token or _random()})
    }
    if embed_redis:
        redis = config.redis.model_copy(
            update={"username": "generator", "password": config.redis.password or _random()}
        )
        updates["redis"] = listening(redis, config.run_folder / REDIS)
    if embed_grader:
        updates["grader"] = config.grader.model_copy(
            update={"token": config.grader.token or _random()}
        )
    return config.model_copy(update=updates)


def _random() -> SecretStr:
    # Entropy of a secret: 256 bits
    return SecretStr(secrets.token_urlsafe(32))
