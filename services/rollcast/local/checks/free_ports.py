"""Whether another program has a port that the run file names."""

from rollcast.local.checks.check import Start
from rollcast.local.ports import check_free_ports, named_ports

SETTINGS = ()


def check(start: Start) -> None:
    check_free_ports(named_ports(start.config, monitor=start.monitor))
