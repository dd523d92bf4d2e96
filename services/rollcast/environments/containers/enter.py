"""A command in a container for programs of this machine, with a bounded output:

    python -I -S enter.py PODMAN EXEC ... COMMAND

Ends with the command's exit code. Output beyond a mebibyte is read and dropped: an agent would
keep it in memory. Run by its path, and imports little, because an agent starts it for each
command.
"""

import os
import subprocess
import sys


def main(command: list[str]) -> int:
    with subprocess.Popen(  # noqa: S603  # podman
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        num_left = 1 << 20
        num_dropped = 0
        # Bytes of one read of a pipe
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            kept_bytes = chunk[:num_left]
            num_left -= len(kept_bytes)
            num_dropped += len(chunk) - len(kept_bytes)
            sys.stdout.buffer.write(kept_bytes)
            sys.stdout.buffer.flush()
        if num_dropped:
            print(f"\n[{num_dropped} further bytes were not kept]", flush=True)
        code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
