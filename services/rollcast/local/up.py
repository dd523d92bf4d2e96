"""`rollcast up`: one run on this machine, from its settings to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from rollcast.local import preflight
from rollcast.local.embedded_redis import wait_for_embedded
from rollcast.local.process import Service
from rollcast.local.resumed import changed_settings
from rollcast.local.services import service_specs
from rollcast.local.supervisor import Ending, Supervisor
from rollcast.runfolder import folder as run_folder
from rollcast.runfolder.files import RUN_FILE, UP_FILE


class View(Protocol):
    """What shows the run while it goes on; no method may take long, and the run stops in order where one raises."""

    def begin(self, config: RunConfig) -> None:
        """`config` is the resolved one; the run's folder is prepared."""

    def report(self, line: str) -> None: ...
    def tick(self) -> None: ...


def run_locally(config: RunConfig, *, resume: bool, view: View, news: Sequence[str] = ()) -> Ending:
    """Check, start, supervise, stop. `news`: what the view is to say first.

    Raises UserError for whatever the user can mend; nothing is left running then.
    """
    config = config.model_copy(update={"folder": config.folder.absolute()})
    preflight.check(config)
    embed_redis = config.redis.port == 0
    embed_grader = config.tasks.grading.sandbox == "remote" and config.grader.port == 0
    with run_folder.locked(config.run_folder):
        up_file = config.run_folder / UP_FILE
        changes = changed_settings(up_file, config) if resume else []
        run_folder.prepare(config.run_folder, resume=resume)
        write_resolved(config, up_file)
        config = preflight.resolve_ports(config)
        run_file = config.run_folder / RUN_FILE
        write_resolved(config, run_file)
        view.begin(config)
        for line in (*news, *changes):
            view.report(line)
        supervisor = Supervisor(
            service_specs(config, run_file, embed_redis=embed_redis, resume=resume, embed_grader=embed_grader),
            restart_limit=config.local.restart_limit,
            report=view.report,
            tick=view.tick,
            worth_saving=lambda: run_folder.has_history(config.run_folder),
        )

        def ready(service: Service) -> None:
            if service.spec.name == "redis":
                wait_for_embedded(config.redis, service, asked_to_stop=supervisor.asked_to_stop)

        ending = supervisor.run(ready)
        view.tick()
        return ending
