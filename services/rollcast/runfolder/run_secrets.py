"""The secrets of a run that `rollcast up` started, for other processes on this machine."""

import socket
from pathlib import Path

from rollcast.config.connections import Redis, Rpc
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, load_run_config
from rollcast.config.services import Grader
from rollcast.runfolder.files import RUN_FILE
from rollcast.runfolder.folder import is_held

_SECRETS = {"redis": "password", "rpc": "token", "grader": "token"}
"""Service -> the setting that holds its secret."""


def with_run_secrets(config: RunConfig) -> RunConfig:
    """`config` with the addresses and secrets of its run under way, for those services that it
    leaves open.

    A generator that is started with the user's own run file, next to those of `rollcast up`, thus
    joins the run. Unchanged if no run is under way, or if this process cannot read its run file.
    """
    if not is_held(config.run_folder):
        return config
    try:
        started_settings = load_run_config(config.run_folder / RUN_FILE, dropped=[])
    except UserError:
        return config
    updates = {
        name: getattr(started_settings, name)
        for name, secret in _SECRETS.items()
        if getattr(getattr(config, name), secret) is None
        and _leaves_open(getattr(config, name), getattr(started_settings, name))
    }
    return config.model_copy(update=updates)


def _leaves_open(settings: Redis | Rpc | Grader, started_settings: Redis | Rpc | Grader) -> bool:
    """Whether `settings` do not name another service than `started_settings`, which are of the same
    kind.
    """
    same_host = "host" not in settings.model_fields_set or settings.host == started_settings.host
    open_ports = (0, started_settings.port)
    same_port = "port" not in settings.model_fields_set or settings.port in open_ports
    return same_host and same_port


def secret_place(run_folder: Path, setting: str) -> str | None:
    """A phrase that says which file holds the secret `setting`; None if `rollcast up` did not start
    the run.
    """
    file = (run_folder / RUN_FILE).absolute()
    return f"{setting} in {file} on {socket.gethostname()}" if file.exists() else None
