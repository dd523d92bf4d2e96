"""The profile folder, as root and as another user, with a file tree of its own and without: what a
shell must not reach, and what must work."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rollcast.tasks.sandbox.protections import missing

ROOT = Path(__file__).parents[2]
NOBODY = 65534
PROBE = Path(__file__).with_name("folder_probe.py")
MODES = {
    "root": [],
    "root, without mounts": ["--without-mounts"],
    "another user": ["--user", str(NOBODY)],
    "another user, without mounts": ["--user", str(NOBODY), "--without-mounts"],
}
CALL = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
"""A raw call prints its result, and the name of its error."""
RAW = CALL + (
    "import errno; r = libc.syscall({}); print(r, errno.errorcode.get(ctypes.get_errno(), '') "
    "if r < 0 else '')"
)

ATTACKS: dict[str, tuple[str, str]] = {
    "prlimit": ("shell", "prlimit --pid VICTIM --cpu=1"),
    "prlimit of files": (
        "python",
        "import resource; resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (9, 9))",
    ),
    "renice": ("shell", "renice -n 19 -p VICTIM"),
    "renice of a user": ("shell", "renice -n 19 -u USER"),
    "renice of a group": (
        "python",
        "import os; os.setpriority(os.PRIO_PGRP, os.getpgid(VICTIM), 19)",
    ),
    "renice of all": ("python", RAW.format("141, 2, USER, 19")),
    "renice by a number with more bits": (
        "python",
        RAW.format("141, ctypes.c_ulong(1 << 32), VICTIM, 19"),
    ),
    "taskset": ("shell", "taskset -p 1 VICTIM"),
    "chrt": ("shell", "chrt -i -p 0 VICTIM"),
    "ionice": ("shell", "ionice -c 3 -p VICTIM"),
    "ionice of a user": ("shell", "ionice -c 3 -u USER"),
    "sched_setattr": (
        "python",
        RAW.format("314, VICTIM, ctypes.create_string_buffer(bytes([48]) + bytes(47)), 0"),
    ),
    "kill": ("shell", "kill -9 VICTIM"),
    "kill of all": ("python", "import os; os.kill(-1, 15)"),
    "a queued signal": ("python", RAW.format("129, VICTIM, 9, ctypes.create_string_buffer(128)")),
    "a signal by descriptor": (
        "python",
        "import os, signal; signal.pidfd_send_signal(os.pidfd_open(VICTIM), 9)",
    ),
    "chmod": ("shell", "chmod 666 OUTSIDE/file; chmod 777 OUTSIDE OUTSIDE/inner"),
    "chmod beside the folder": ("shell", "chmod 777 ../../../$(basename OUTSIDE)/inner"),
    "chmod through a link": ("shell", "ln -s OUTSIDE/file link; chmod 666 link"),
    "chmod through a linked folder": (
        "shell",
        "ln -s OUTSIDE out; chmod 666 out/file; chmod 777 out/inner",
    ),
    "chmod from a linked folder": ("shell", "cd OUTSIDE && chmod 777 inner"),
    "chmod by an odd path": ("shell", 'chmod 666 "$PWD/../../../$(basename OUTSIDE)/file"'),
    "chmod through proc": (
        "shell",
        "chmod 666 /proc/self/root/OUTSIDE/file; chmod 777 /proc/self/cwd/../../../OUTSIDE",
    ),
    "fchmod of a descriptor": (
        "python",
        "import os; os.fchmod(os.open('OUTSIDE/file', os.O_PATH), 0o666)",
    ),
    "chmod of a descriptor's path": (
        "python",
        "import os; f = os.open('OUTSIDE/file', os.O_PATH); os.chmod(f'/proc/self/fd/{f}', 0o666)",
    ),
    "fchmodat2 of a descriptor": (
        "python",
        RAW.format("452, os.open('OUTSIDE/file', os.O_PATH), b'', 0o666, 0x1000"),
    ),
    "fchmod of a stream": ("python", "import os; os.fchmod(1, 0o667)"),
    "chmod of a linked file": ("shell", "ln OUTSIDE/file hard && chmod 666 hard"),
    "chmod at an address of nothing": (
        "python",
        RAW.format("90, ctypes.c_ulong(2**63 + 5), 0o666"),
    ),
    "chmod of what is exchanged": (
        "python",
        "import os, threading\nos.makedirs('swap/d', exist_ok=True); open('swap/d/file', "
        "'w').close()\n"
        "os.symlink('OUTSIDE', 'swap/l')\ndef swap():\n    for _ in range(400):\n"
        "        os.rename('swap/d', 'swap/x'); os.rename('swap/l', 'swap/d'); os.rename('swap/d', "
        "'swap/l'); "
        "os.rename('swap/x', 'swap/d')\nt = threading.Thread(target=swap); t.start()\nwhile "
        "t.is_alive():\n    try:\n"
        "        os.chmod('swap/d/file', 0o666)\n    except OSError:\n        pass",
    ),
    "touch": ("shell", "touch -d 2001-02-03 OUTSIDE/file OUTSIDE/inner"),
    "utime": ("python", "import os; os.utime('OUTSIDE/file', (1, 1)); os.utime('OUTSIDE/inner')"),
    "utimensat of a descriptor": (
        "python",
        RAW.format("280, os.open('OUTSIDE/inner', os.O_PATH), b'', None, 0x1000"),
    ),
    "futimesat": ("python", RAW.format("261, -100, b'OUTSIDE/file', None")),
    "chown": ("python", "import os; os.chown('OUTSIDE/file', 1234, 1234)"),
    "an attribute": ("python", "import os; os.setxattr('OUTSIDE/file', 'user.x', b'1')"),
    "file_setattr": (
        "python",
        RAW.format("469, -100, b'OUTSIDE/file', ctypes.create_string_buffer(24), 24, 0"),
    ),
    "inotify": ("python", "import ctypes; print(ctypes.CDLL(None).inotify_init() < 0 or 'made')"),
    "fanotify": ("python", RAW.format("300, 0, 0")),
    "dnotify": ("python", RAW.format("72, os.open('/usr/lib', os.O_RDONLY), 1026, 1")),
    "a lease": ("python", RAW.format("72, os.open(os.__file__, os.O_RDONLY), 1024, 0")),
    "mount_setattr": (
        "python",
        RAW.format(
            "442, -100, b'/', 0x8000, ctypes.create_string_buffer(bytes(8) + b'\\1' + bytes(23)), "
            "32"
        ),
    ),
    "unshare": ("python", RAW.format("272, 0x10020000")),
    "write": ("shell", "echo x > OUTSIDE/made; rm -f OUTSIDE/file; mv OUTSIDE/file ."),
    "read": ("shell", "cat OUTSIDE/file"),
    "chroot": (
        "shell",
        "mkdir -p root; chroot root /bin/true || python3 -c \"import os; os.chroot('root')\"",
    ),
    "more processor time": (
        "shell",
        "prlimit --pid $$ --fsize=unlimited:unlimited --as=unlimited:unlimited",
    ),
}
WHEEL = """
import zipfile
parts = {
    'tiny.py': 'x = 5\\n', 'tiny-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n',
    'tiny-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',
    'tiny-1.0.dist-info/RECORD': 'tiny.py,,\\n',
}
with zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w') as file:
    for name, text in parts.items():
        file.writestr(name, text)
"""  # noqa: E501
PYTHON = "/usr/bin/python3"
WORKS: dict[str, tuple[str, str, str, str]] = {
    "git": (
        "git",
        "shell",
        "git init -q r && cd r && git config user.email a@b.c && git config user.name n && echo hi "
        "> f && git add f && git commit -qm m && cd .. && git clone -q r r2 && cat r2/f",
        "hi",
    ),
    "a virtual environment": (
        PYTHON,
        "shell",
        f"{PYTHON} -m venv v && v/bin/python -c 'print(6 * 7)'",
        "42",
    ),
    "a wheel": (
        PYTHON,
        "shell",
        f'{PYTHON} -c "{WHEEL}" && {PYTHON} -m pip install -q --no-index --target lib '
        "tiny-1.0-py3-none-any.whl "
        f"2> log; PYTHONPATH=lib {PYTHON} -c 'import tiny; print(tiny.x)' || cat log",
        "5",
    ),
    "make": (
        "make",
        "shell",
        "printf 'all:\\n\\techo made > product\\n' > Makefile && make -s && cat product",
        "made",
    ),
    "chmod +x": ("sh", "shell", "echo 'echo ran' > s.sh && chmod +x s.sh && ./s.sh", "ran"),
    "chmod of a folder": ("sh", "shell", "mkdir m && chmod 750 m && stat -c %a m", "750"),
    "chmod up and down": (
        "sh",
        "shell",
        "mkdir -p n/o && cd n/o && chmod 711 ../../n && stat -c %a ../../n",
        "711",
    ),
    "touch -d": ("sh", "shell", "touch -d 2001-02-03 t && stat -c %y t | cut -c1-10", "2001-02-03"),
    "cp -p": (
        "sh",
        "shell",
        "touch -d 2001-02-03 p && cp -p p q && stat -c %y q | cut -c1-10",
        "2001-02-03",
    ),
    "cp -a of a link": ("sh", "shell", "ln -sf p p2; cp -a p2 p3 && readlink p3", "p"),
    "install": ("install", "shell", "echo x > i && install -m 751 i j && stat -c %a j", "751"),
    "copy2": (
        PYTHON,
        "shell",
        f"{PYTHON} -c \"import shutil; shutil.copy2('s.sh', 's2.sh')\" && ./s2.sh",
        "ran",
    ),
    "tar": (
        "tar",
        "shell",
        "mkdir -p d/e && echo x > d/e/f && chmod 640 d/e/f && tar --owner=1234 --group=1234 -cf "
        "d.tar d && rm -r d && tar xf d.tar && stat -c %a d/e/f d/e",
        "640\n755",
    ),
    "gcc": (
        "gcc",
        "shell",
        "printf '#include <stdio.h>\\nint main() { puts(\"ran\"); }' > c.c && gcc c.c -o c && ./c",
        "ran",
    ),
    "node": ("node", "shell", "node -e 'console.log(6 * 7)'", "42"),
    "nice": ("nice", "shell", "nice -n 5 echo ran", "ran"),
    "timeout": ("timeout", "shell", "timeout 60 echo ran", "ran"),
    "taskset": (
        "taskset",
        "shell",
        "taskset -c 0 echo ran && taskset -p -c 0 $$ > /dev/null && echo again",
        "ran\nagain",
    ),
    "prlimit of its own": ("prlimit", "shell", "prlimit --pid $$ --nofile=100 && ulimit -n", "100"),
    "kill of its own": ("sh", "shell", "sleep 600 & kill $!; wait $! 2> /dev/null; echo $?", "143"),
    "abort": ("sh", "shell", f"{PYTHON} -c 'import os; os.abort()' 2> /dev/null; echo $?", "134"),
    "rename and symlinks": ("sh", "shell", "echo y > y; mv y z; ln -s z w; cat w", "y"),
    "the interpreter": (
        PYTHON,
        "python",
        (
            "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(5)'], "
            "capture_output=True).stdout)"
        ),
        "b'5\\n'",
    ),
}
NEED_SHARED_MEMORY: dict[str, tuple[str, str, str, str]] = {
    "a pool": (
        PYTHON,
        "shell",
        f"{PYTHON} -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'",
        "[1, 2]",
    ),
    "a pool of the tool": (
        "sh",
        "python",
        "import multiprocessing as m\nprint(m.Pool(2).map(abs, [-1, -2]))",
        "[1, 2]",
    ),
    "shared memory": ("sh", "shell", "echo x > /dev/shm/x && cat /dev/shm/x", "x"),
}


SLOW = {"a virtual environment", "a wheel"}
"""Several seconds of processor time each: played where files are changed by mounts, and where by
the notifier."""


def works(mode: str) -> dict[str, tuple[str, str, str, str]]:
    """What is tried in a mode, by its name."""
    left_out = SLOW if mode in ("root, without mounts", "another user") else set()
    return {
        name: work for name, work in (WORKS | NEED_SHARED_MEMORY).items() if name not in left_out
    }


def interpreter(user: bool) -> str:
    """One that can be executed; for another user one of the system's with our packages."""
    if not user:
        return sys.executable
    version = subprocess.run(
        [PYTHON, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True
    )
    if version.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip(f"{PYTHON} is not of the version that the packages here are made for")
    return PYTHON


@functools.cache
def probed(mode: str) -> dict[str, Any]:
    """All calls in one environment."""
    if lacks := missing():
        pytest.skip(f"this machine lacks {' and '.join(lacks)}")
    if os.getuid() != 0 and mode.startswith(("root", "another")):
        pytest.skip("only root can be both users")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    folder = Path(tempfile.mkdtemp(prefix="outside-"))
    program = interpreter("--user" in MODES[mode])
    calls = {f"attack: {name}": call for name, call in ATTACKS.items()}
    calls |= {name: (tool, text) for name, (_, tool, text, _) in works(mode).items()}
    try:
        if "--user" in MODES[mode]:
            os.chown(folder, NOBODY, NOBODY)
        run = subprocess.run(
            [program, "-P", str(PROBE), str(folder), *MODES[mode]],
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "services"), site])},
        )
    finally:
        shutil.rmtree(folder)
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("mode", MODES)
def test_nothing_outside_is_changed(mode: str) -> None:
    found = probed(mode)
    assert found["changed"] == {}
    assert found["answers"]["attack: inotify"] == "True"
    assert "mine" not in found["answers"]["attack: read"]
    assert "ENOSYS" in found["answers"]["attack: fanotify"]
    refused = (
        "rror",
        "ermitted",
        "ead-only",
        "-1",
        "ailed",
        "denied",
        "True",
        "(no output)",
        "No such",
        "annot",
    )
    assert [
        name
        for name in ATTACKS
        if not any(word in found["answers"][f"attack: {name}"] for word in refused)
    ] == []


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for mode in MODES for name in works(mode)])
def test_it_works_in_the_folder(name: str, mode: str) -> None:
    program, _, _, text = works(mode)[name]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    if name in NEED_SHARED_MEMORY and "--without-mounts" in MODES[mode]:
        pytest.skip("without a file tree of its own an environment has no shared memory")
    assert probed(mode)["answers"][name] == text
