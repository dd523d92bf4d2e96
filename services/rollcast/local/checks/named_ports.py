"""Whether two settings give one port, or one that does not exist."""

from rollcast.local.checks.check import Start
from rollcast.local.ports import check_named_ports, named_ports

SETTINGS = ()


def check(start: Start) -> None:
    check_named_ports(named_ports(start.config, monitor=start.monitor))
