"""Makes the sessions that a run file with harnesses asks for."""

import asyncio
from pathlib import Path

from rollcast.config.connections import Http
from rollcast.config.environments.settings import SessionEnvironment
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.tasks import Tasks
from rollcast.connections.certificates import verifying_context
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.telemetry.exporter import Exporter


def make_sessions(model: Model, tasks: Tasks, http: Http, exporter: Exporter) -> Sessions | None:
    """The sessions of harnesses, on the running loop; None = the run file names no harness.

    Raises UserError if http.tls.certificate_authority cannot be read.
    """
    if not any(isinstance(environment, SessionEnvironment) for environment in tasks.environments):
        return None
    run_token = None if http.token is None else http.token.get_secret_value().encode()
    authority = http.tls.certificate_authority if http.tls else None
    verifying_context(http.tls, "http.tls")
    return Sessions(
        Path(model.path).name, exporter, asyncio.get_running_loop(), run_token, authority
    )


def check_harnesses(tasks: Tasks, http: Http) -> None:
    """Raises UserError if programs elsewhere could not ask for their tasks."""
    for number, environment in enumerate(tasks.environments):
        if (
            isinstance(environment, SessionEnvironment)
            and not environment.is_started_here
            and http.token is None
        ):
            raise UserError(
                f"tasks.environments.{number}.command is missing, and programs of your own that "
                "ask for tasks need the run's http.token; give a command, or set "
                "ROLLCAST_HTTP_TOKEN"
            )
