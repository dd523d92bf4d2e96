"""The process that runs what the model wrote, for the tools `python` and `shell`: one for each
environment.

    environment's process --- tool, arguments, seconds ---> process of the programs
                          <-- text -------------------------

It is forked before the environment's process answers anything, so it has neither the generator's
connection nor a row. Its answers are checked, and are at most a text for the model. If a user's
code is in memory it starts a new Python.

python -P -m rollcast.environments.python_processes.programs TOOLS CALL_SECONDS FILTER
    the connection is FIRST_DESCRIPTOR
"""

import ctypes
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rollcast.environments.overdue import OverdueError
from rollcast.environments.python_processes.instance import (
    answer_call,
    deadline,
    interrupt_at_deadlines,
)
from rollcast.processes.frames import MAX_REQUEST_BYTES, pack_message, receive
from rollcast.processes.linux import Prctl, prctl

Program = Callable[..., str]


def make_programs(names: tuple[str, ...], call_seconds: float) -> dict[str, Program]:
    """The tools by their names."""
    from rollcast.environments.tools.python_code import python
    from rollcast.environments.tools.shell import shell_within

    programs: dict[str, Program] = {"python": python, "shell": shell_within(call_seconds)}
    return {name: programs[name] for name in names}


def serve_programs(programs: Mapping[str, Program], connection: socket.socket) -> None:
    """Run one program after another until the connection closes."""
    interrupt_at_deadlines()
    while (request := receive(connection, MAX_REQUEST_BYTES)) is not None:
        connection.sendall(
            pack_message({**_answer(programs, request), "number": request["number"]})
        )


def _answer(programs: Mapping[str, Program], request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with deadline(float(request["seconds"])):
            return answer_call(lambda: programs[request["tool"]](**request["arguments"]))
    except OverdueError:
        return {"overdue": True}


def main(arguments: list[str]) -> None:
    names, call_seconds, program = arguments
    programs = make_programs(tuple(names.split(",")), float(call_seconds))
    if program:
        _load_filter(bytes.fromhex(program))
    # 3: the first descriptor after the standard streams.
    serve_programs(programs, socket.socket(fileno=3))


def _load_filter(program: bytes) -> None:
    """A compiled seccomp filter.

    Landlock has seen to it that this process cannot gain rights. Raises OSError.
    """
    content = ctypes.create_string_buffer(program, len(program))
    instruction_bytes = 8
    filter_program = _FilterProgram(len(program) // instruction_bytes, ctypes.addressof(content))
    mode_filter = 2
    if prctl(Prctl.SET_SECCOMP, mode_filter, ctypes.addressof(filter_program)):
        raise OSError(ctypes.get_errno(), "the system-call filter cannot be set")


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)
