"""Limits of the kernel on this process."""

import resource


def limit(kind: int, value: int) -> None:
    """Limit this process and all that it starts. A lower limit of the system stays."""
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def address_space_bytes() -> int:
    """Current usage of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
