"""The first process of a pod, in this machine's shell."""

from __future__ import annotations

import subprocess

import psutil

from rollcast.environments.containers.pods.manifest import FIRST_PROCESS
from testkit.system.harness import wait_for


def stopped_child(shell: psutil.Process) -> psutil.Process | None:
    children = shell.children()
    is_stopped = len(children) == 1 and children[0].status() == psutil.STATUS_STOPPED
    return children[0] if is_stopped else None


def test_it_starts_no_program_and_goes_on_when_its_child_is_killed() -> None:
    """A program of the image may be the model's by then, and would run after every other one was
    ended.
    """
    # A shell finds no program without PATH.
    with subprocess.Popen(
        ["/bin/sh", "-c", FIRST_PROCESS], env={"PATH": ""}, stderr=subprocess.PIPE
    ) as process:
        shell = psutil.Process(process.pid)
        try:
            child = wait_for(lambda: stopped_child(shell), 60, "a child that never goes on")
            child.kill()
            other_child = wait_for(
                lambda: shell.children() != [child] and stopped_child(shell), 60, "another child"
            )
            assert other_child.pid != child.pid
            assert process.poll() is None
        finally:
            # The shell first: it starts another child in place of one that is killed.
            children = shell.children(recursive=True)
            shell.suspend()
            for descendant in {*children, *shell.children(recursive=True)}:
                descendant.kill()
            process.kill()
        assert process.stderr is not None
        assert b"not found" not in process.stderr.read()
