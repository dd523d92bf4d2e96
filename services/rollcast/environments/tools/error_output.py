"""The standard error of a server that is started here: passed on to the generator's own, and its
last lines kept.

server -> pipe -> a thread reads until every end for writing is closed
               -> standard error of this process
"""

import os
import sys
import threading
from contextlib import suppress

from rollcast.environments.last_lines import LastLines


class ErrorOutput:
    """`with ErrorOutput() as output`: give `output.file` to the server.

    Its copy may outlive the block.
    """

    def __init__(self) -> None:
        read_descriptor, write_descriptor = os.pipe()
        self.file = os.fdopen(write_descriptor, "w")
        self._lines = LastLines()
        self._thread = threading.Thread(target=self._pass_on, args=(read_descriptor,), daemon=True)
        self._thread.start()

    def __enter__(self) -> "ErrorOutput":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def wait_for_end(self) -> None:
        """Wait half a second at most until all that a server that has ended wrote is read."""
        self._thread.join(0.5)

    def last_lines(self) -> str:
        """The last lines so far, in one; empty = nothing was written."""
        return self._lines.in_one_line()

    def _pass_on(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            # Bytes of one read of a pipe
            while chunk := pipe.read(1 << 16):
                with suppress(OSError, ValueError):
                    sys.stderr.buffer.write(chunk)
                    sys.stderr.flush()
                self._lines.add(chunk)
        self._lines.end()
