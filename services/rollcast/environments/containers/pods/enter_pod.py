"""A command in a pod for programs of the generator's machine:

    python -I -S enter_pod.py SOCKET COMMAND

Ends with the command's exit code; 125 = it could not be run to its end. Run by its path, and
imports little, because an agent starts it for each command.
"""

import json
import socket
import sys


def main(path: str, command: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            connection.sendall(json.dumps(command).encode() + b"\n")
            with connection.makefile("rb") as answer:
                while size := int.from_bytes(answer.read(4), "big"):
                    sys.stdout.buffer.write(answer.read(size))
                    sys.stdout.buffer.flush()
                code = answer.read(1)
        except OSError:
            code = b""
    if not code:
        print("the container has ended", flush=True)
    return code[0] if code else 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
