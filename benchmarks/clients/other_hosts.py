"""Other hosts that a client tried to reach, by strace.

strace CLIENT -> a line for each connection and packet -> addresses outside of this machine, and
                                                          names that were asked for
"""

from __future__ import annotations

import ipaddress
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

CALLS = "connect,sendto,sendmsg,sendmmsg"
NAME_SERVER_PORT = 53
PORT = re.compile(r"sin6?_port=htons\((\d+)\)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})+)"')


def strace_command(command: Sequence[str], log: Path) -> list[str]:
    """The command, whose connections are written to a file, if strace is there."""
    strace = shutil.which("strace")
    if strace is None:
        return list(command)
    # -A: the file is that of all episodes. -xx: packets are binary.
    return [strace, *f"-f -qq -A -xx -s 128 -e trace={CALLS} -o".split(), str(log), *command]


def other_hosts(log: Path) -> dict[str, int] | None:
    """How often each address, with its port, and each name was asked for; this machine's addresses
    and its name server are left out. None = there is no strace.
    """
    if shutil.which("strace") is None:
        return None
    hosts: Counter[str] = Counter()
    for line in log.read_text().splitlines() if log.exists() else ():
        texts = [bytes.fromhex(text.replace("\\x", "")) for text in TEXT.findall(line)]
        hosts.update(asked_names(texts))
        port = PORT.search(line)
        # Programs ask the kernel for a route by connecting to port 0.
        if port is None or int(port.group(1)) in (0, NAME_SERVER_PORT):
            continue
        address = ipaddress.ip_address(texts[-1].decode())
        if not address.is_loopback:
            hosts[f"{address} port {port.group(1)}"] += 1
    return dict(sorted(hosts.items()))


def asked_names(packets: Sequence[bytes]) -> Iterator[str]:
    """The names in questions to a name server: https://www.rfc-editor.org/rfc/rfc1035#section-4.1"""
    for packet in packets:
        # Flags of a question, and one question
        if packet[2:3] != b"\x01" or packet[4:6] != b"\x00\x01":
            continue
        labels, rest = [], packet[12:]
        while rest and 0 < rest[0] < 64:
            labels.append(rest[1 : 1 + rest[0]].decode("ascii", "replace"))
            rest = rest[1 + rest[0] :]
        if labels:
            yield ".".join(labels)
