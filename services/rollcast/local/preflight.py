"""A run file on its way to a start here: filled in, checked, given its ports."""

from pathlib import Path
from typing import TypeVar

from rollcast.config.base import Settings
from rollcast.config.errors import UserError
from rollcast.config.resolved import Difference, differences
from rollcast.config.run import RunConfig, WrongSettingsError, load_run_config
from rollcast.local.checks.check import Finding, Reach, Start
from rollcast.local.checks.checklist import check_start, make_checks, without_refusals
from rollcast.local.devices import usable_gpus
from rollcast.local.left_out import filled_in
from rollcast.local.monitor import HOST as PROMETHEUS_HOST
from rollcast.local.ports import free_port, keep_port
from rollcast.memory.device import smallest_gpu
from rollcast.memory.host import HostLimits
from rollcast.telemetry.host_memory import free_bytes

Group = TypeVar("Group", bound=Settings)


def load_to_start(file: Path) -> tuple[RunConfig, list[Difference]]:
    """The run file that a whole run is to be started from here, with defaults for the settings that
    it leaves out, and these. Raises UserError: names wrong settings, and the mistakes in files that
    other settings name.
    """
    filled_settings: list[Difference] = []

    def fill_in(config: RunConfig) -> RunConfig:
        filled_config = filled_in(config)
        filled_settings.extend(differences(config, filled_config))
        return filled_config

    try:
        return load_run_config(file, to_start=True, filled_in=fill_in), filled_settings
    except WrongSettingsError as error:
        findings = [Finding(str(error), error)]
        if error.config is not None:
            findings += make_checks(Start(error.config, mistakes=error.mistakes))
        without_refusals(findings)
        raise


def in_words(filled_settings: list[Difference]) -> str:
    """The filled-in settings, as the run file would contain them."""
    return ", ".join(f"{difference.field} {difference.new_value}" for difference in filled_settings)


def check(config: RunConfig, *, monitor: bool = False, resume: bool | None = None) -> list[str]:
    """Warnings: what the user should know before the run starts here and now.

    `monitor`: a Prometheus is started with it. `resume`: None = the run's folder is not looked at.
    Raises UserError for all that would stop the run on this machine: one sentence for each, none of
    them twice.
    """
    host = HostLimits(config.local.trainer_ranks, machine=free_bytes())
    # A run that may use none of this machine's GPUs is one on its CPU.
    device = smallest_gpu() if usable_gpus() else None
    return check_start(Start(config, Reach.START, monitor, resume, device=device, host=host))


def resolve_ports(config: RunConfig, *, monitor: bool = False) -> RunConfig:
    """Give every port that other processes must know beforehand a number; services publish the rest
    themselves.

    Raises UserError where another run has taken a port that is set, although its service does not
    listen yet.
    """
    page_host = config.forecaster.bind
    updates: dict[str, Settings] = {
        "forecaster": _untaken("forecaster.http_port", config.forecaster, page_host),
        "redis": _with_port(config.redis, "port", config.redis.host),
        "rpc": _with_port(config.rpc, "port", config.rpc.bind),
        "grader": _with_port(config.grader, "port", config.grader.bind),
    }
    if monitor:
        local = _untaken("local.prometheus_port", config.local, PROMETHEUS_HOST)
        updates["local"] = _with_port(local, "prometheus_port", PROMETHEUS_HOST)
        updates["forecaster"] = _with_port(updates["forecaster"], "http_port", page_host)
    return config.model_copy(update=updates)


def _with_port(settings: Group, name: str, host: str) -> Group:
    """The group with a free port of `host` if it has 0."""
    return settings.model_copy(update={name: getattr(settings, name) or free_port(host)})


def _untaken(setting: str, settings: Group, host: str) -> Group:
    """A usual port that another run of this machine has taken becomes 0, any free one, if the run
    file left it out.

    `settings`: the group of `setting`.
    """
    name = setting.rpartition(".")[2]
    port = getattr(settings, name)
    if not port or keep_port(host, port):
        return settings
    if name in settings.model_fields_set:
        raise UserError(
            f"{setting} = {port}: another run of this machine is about to use it; choose a free "
            "port"
        )
    return settings.model_copy(update={name: 0})
