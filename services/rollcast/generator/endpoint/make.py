"""Makes the sessions that a run file with harnesses asks for, and serves them."""

from collections.abc import Callable
from pathlib import Path
from socket import socket

from rollcast.config.connections import Http
from rollcast.config.environments.settings import SessionEnvironment
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.tasks import Tasks
from rollcast.connections.certificates import verifying_context
from rollcast.connections.http import HttpServer, always_alive, local_url, service_routes
from rollcast.generator.endpoint.application import GUARDED_HERE, EndpointApplication
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.telemetry.exporter import Exporter


def make_sessions(model: Model, tasks: Tasks, http: Http) -> Sessions | None:
    """The sessions of harnesses, on the running loop; None = the run file names no harness.

    Raises UserError if http.tls.certificate_authority cannot be read.
    """
    if not any(isinstance(environment, SessionEnvironment) for environment in tasks.environments):
        return None
    verifying_context(http.tls, "http.tls")
    return Sessions(Path(model.path).name, http)


def serve(
    http: Http,
    listener: socket,
    exporter: Exporter,
    sessions: Sessions | None,
    ready: Callable[[], tuple[bool, str]] = always_alive,
    started: Callable[[], tuple[bool, str]] = always_alive,
) -> HttpServer:
    """Start the server of probes, metrics and, if the run has harnesses, their endpoint."""
    routes = () if sessions is None else EndpointApplication(sessions).routes()
    application = service_routes(exporter.render, ready, started=started, routes=routes)
    server = HttpServer(application, listener, http, guarded=GUARDED_HERE)
    server.start()
    if sessions is not None:
        sessions.url = local_url(http, server.port)
    return server


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
