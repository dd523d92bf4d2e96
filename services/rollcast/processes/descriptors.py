"""The descriptors of a fork server, and those that its children keep."""

import fcntl
import os
import resource

MAX_SERVER_FILES = 4096
"""Descriptors that a fork server may have open: a child closes as many."""
FIRST_KEPT_DESCRIPTOR = 3


def allow_server_files() -> None:
    """Let this process have MAX_SERVER_FILES open, or as many as the system allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MAX_SERVER_FILES, hard), hard))


def keep_only(descriptors: tuple[int, ...]) -> None:
    """Close everything except the standard streams and these, which become FIRST_KEPT_DESCRIPTOR
    and so on.
    """
    end = FIRST_KEPT_DESCRIPTOR + len(descriptors)
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, end) for descriptor in descriptors]
    for target, copy in enumerate(copies, start=FIRST_KEPT_DESCRIPTOR):
        os.dup2(copy, target)
    os.closerange(end, MAX_SERVER_FILES)
