"""A chat template is a program of a third party, and one with nested loops may never end. This ends
the process then.

watched -> rendering -> done        one thread for all renderings of a process
              `- deadline: one sentence on standard error that names the template, exit code 2

It needs Python's lock, which one long operation would hold: those are bounded
(`rollcast.tasks.template_operations`).
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rollcast.config.errors import EXIT_USER_ERROR

RENDER_SECONDS = 60.0
"""Deadline for one chat, thousands of times what an ordinary template takes for the longest."""


@dataclass(eq=False)
class _Watchdog:
    """The renderings under way, with their monotonic deadlines."""

    rendering: dict[int, tuple[str, float]] = field(default_factory=dict)
    """By the identity of the thread that renders."""
    thread: threading.Thread | None = None
    process: int = 0
    """A fork has no thread of its parent's."""

    def start(self) -> None:
        if self.process == os.getpid():
            return
        self.process = os.getpid()
        self.rendering.clear()
        self.thread = threading.Thread(target=self._watch, name="template-watch", daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while True:
            # Seconds between two looks at a template that renders
            time.sleep(1.0)
            now_seconds = time.monotonic()
            for name, deadline in list(self.rendering.values()):
                if now_seconds > deadline:
                    _end(name)


_watchdog = _Watchdog()


@contextmanager
def watch_template(template: str) -> Iterator[None]:
    """End this process if the block takes longer than RENDER_SECONDS.

    `template`: whose, for the sentence.
    """
    from rollcast.tasks.template_operations import bound_operations

    bound_operations()
    _watchdog.start()
    thread = threading.get_ident()
    _watchdog.rendering[thread] = (template, time.monotonic() + RENDER_SECONDS)
    try:
        yield
    finally:
        _watchdog.rendering.pop(thread, None)


def never_ends(template: str, seconds: float) -> str:
    """The sentence about a template that was given this long."""
    return (
        f"the chat template of {template} did not end within {seconds:g} s: it has loops that grow "
        "with the chat; give "
        "the model's folder another template, or name the renderer of its family in model.renderer"
    )


def _end(template: str) -> None:
    print(f"error: {never_ends(template, RENDER_SECONDS)}", file=sys.stderr, flush=True)
    os._exit(EXIT_USER_ERROR)
