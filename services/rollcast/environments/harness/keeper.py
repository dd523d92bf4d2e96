"""A harness and all that it starts end together.

    python -m rollcast.environments.harness.keeper PARENT FOLDER COMMAND...

Ends with the exit code of the command, and removes FOLDER, because PARENT may have been killed.
SIGTERM, or the end of the process PARENT: kills all of them, in any session.
"""

import os
import sys
from pathlib import Path

from rollcast.environments.harness.folder import lock_folder
from rollcast.environments.python_processes import removal
from rollcast.processes.tree import guard


def main(arguments: list[str]) -> int:
    parent, folder, *command = arguments
    lock_folder(Path(folder))  # until this process ends

    def run() -> None:
        try:
            os.execvp(command[0], command)  # noqa: S606  # the user's own program
        except OSError as error:
            print(f"{command[0]} cannot be started: {error.strerror}", flush=True)
            # Exit code, as of a shell
            os._exit(127)

    code = guard(run, int(parent), clear=lambda: removal.remove_tree(folder))
    # A signal as a shell reports it.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
