# each program is one line
"""Programs that mean harm: what each tries, by family, and what would show that it got through.

Every entry is the body of a function, run as `try: BODY except BaseException: pass` before `return
2`; what stands in double angle brackets is filled in with things that really exist (a listener, a
victim process, files).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    family: str
    number: int
    source: str

    @property
    def name(self) -> str:
        return f"{self.family}-{self.number}"


ENDLESS = [
    "while True: pass",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "import itertools\nfor i in itertools.count(): i * i",
    "import time\ntime.sleep(10**6)",
    "import signal\nsignal.pause()",
    "import re\nre.match('(a+)+$', 'a' * 64 + 'b')",
    "9 ** 9 ** 9",
    "sum(range(10 ** 18))",
    "sorted(iter(int, 1))",
    "import threading\nlock = threading.Lock(); lock.acquire(); lock.acquire()",
    "import select\nselect.select([], [], [])",
    (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    "
        "except Exception: pass\nwhile True: pass"
    ),
    "import signal\nsignal.signal(signal.SIGXCPU, lambda *a: None)\nwhile True: pass",
    "import os\nr, w = os.pipe()\nos.read(r, 1)",
    "import queue\nqueue.Queue().get()",
    "class A:\n    def __del__(self):\n        while True: pass\na = A(); del a",
    "import numpy\nwhile True: numpy.ones(1000) @ numpy.ones(1000)",
    "import math\nmath.factorial(10 ** 9)",
    "'a' in iter(lambda: 'b', 'c')",
    "import fcntl, os\nr, w = os.pipe()\nwhile True: os.write(w, b'x')",
    "while True: print('x' * 1000)",
    "import os\nwhile True: os.write(2, b'x' * 65536)",
]
MEMORY = [
    "x = bytearray(1 << 40)",
    "x = []\nwhile True: x.append(bytearray(1 << 24))",
    "x = 'a'\nwhile True: x += x",
    "x = {}\nwhile True: x[len(x)] = 'v' * 10000",
    (
        "import mmap\nx = [mmap.mmap(-1, 1 << 28) for _ in range(100)]\nfor m in x: m.write(b'x' * "
        "(1 << 28))"
    ),
    "import numpy\nx = [numpy.ones(1 << 26) for _ in range(100)]",
    "import array\nx = array.array('d', bytes(8 << 20)) * 1000",
    "import io\nx = io.BytesIO()\nwhile True: x.write(bytes(1 << 24))",
    "import zlib\nzlib.decompress(zlib.compress(bytes(1 << 26)) , bufsize=1 << 36)",
    "x = 1 << (1 << 37)",
    "x = '%01000000000000d' % 1",
    (
        "import ctypes\nl = ctypes.CDLL(None); l.malloc.restype = ctypes.c_void_p\np = [l.malloc(1 "
        "<< 28) for _ in range(64)]\nassert all(p)"
    ),
    "x = [[]]\nwhile True: x = [x * 1000]; x = x[0] * 1000",
    "x = list(range(10 ** 12))",
    "x = set()\nwhile True: x.update(range(len(x), len(x) + 10 ** 6))",
    "import collections\nx = collections.deque()\nwhile True: x.extend(range(10 ** 6))",
    "x = bytes(1 << 33)",
    "x = (0,) * (1 << 34)",
    "import itertools\nx = list(itertools.product(range(100), repeat=10))",
    "x = 'x'.join(str(i) for i in range(10 ** 10))",
    "import os, itertools\nx = [os.pipe() for _ in range(10 ** 6)]",
]
PROCESSES = [
    "import os\nwhile True: os.fork()",
    "import os\nif os.fork() == 0:\n    while True: open('<<folder>>/forked', 'w')",
    "import os\nos.forkpty()",
    "import pty\npty.fork()",
    "import subprocess\nsubprocess.run(['touch', '<<folder>>/run'])",
    "import subprocess\nwhile True: subprocess.Popen(['sleep', '600'])",
    "import os\nos.system('touch <<folder>>/system')",
    "import os\nos.popen('touch <<folder>>/popen').read()",
    "import os\nos.posix_spawn('/usr/bin/touch', ['touch', '<<folder>>/spawn'], {})",
    "import os\nos.execv('/usr/bin/touch', ['touch', '<<folder>>/exec'])",
    "import os\nos.execvpe('sh', ['sh', '-c', 'touch <<folder>>/shell'], {})",
    (
        "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=open, "
        "args=('<<folder>>/mp', 'w')); p.start(); p.join()"
    ),
    "import multiprocessing\nmultiprocessing.get_context('spawn').Pool(2).map(abs, [1])",
    (
        "import concurrent.futures\nconcurrent.futures.ProcessPoolExecutor().submit(abs, "
        "1).result(0.2)"
    ),
    "import _thread\nwhile True: _thread.start_new_thread(print, ())",
    "import ctypes\nwhile True: ctypes.CDLL(None).fork()",
    "import ctypes\nctypes.CDLL(None).vfork()",
    "import ctypes\nctypes.CDLL(None).syscall(57)",
    "import ctypes\nctypes.CDLL(None).syscall(58)",
    "import ctypes\nctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0)",
    "import ctypes\nctypes.CDLL(None).syscall(435, (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17), 88)",
    (
        "import ctypes\nctypes.CDLL(None).syscall(59, b'/usr/bin/touch', (ctypes.c_char_p * "
        "3)(b'touch', b'<<folder>>/execve', None), None)"
    ),
    (
        "import ctypes\nctypes.CDLL(None).syscall(322, -100, b'/usr/bin/touch', (ctypes.c_char_p * "
        "3)(b'touch', b'<<folder>>/execveat', None), None, 0)"
    ),
    "import ctypes\nctypes.CDLL(None).system(b'touch <<folder>>/libc')",
    "import os\nos.setsid()\nos.fork()",
    (
        "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n[os.fork() for _ in "
        "range(100)]"
    ),
]
READING = [
    "import os\nreturn os.environ['ROLLCAST_REDIS_PASSWORD']",
    "import os\nreturn os.environb[b'ROLLCAST_REDIS_PASSWORD'].decode()",
    (
        "import ctypes\nl = ctypes.CDLL(None); l.getenv.restype = ctypes.c_char_p\nreturn "
        "l.getenv(b'ROLLCAST_REDIS_PASSWORD').decode()"
    ),
    "return find(open('/proc/self/environ').read())",
    "import os\nreturn find(open('/proc/%d/environ' % os.getppid()).read())",
    "return find(open('/proc/<<victim>>/environ').read())",
    "return find(open('/proc/<<victim>>/task/<<victim>>/environ').read())",
    (
        "import os\nreturn find(''.join(open('/proc/%s/environ' % p, errors='replace').read() for "
        "p in os.listdir('/proc') if p.isdigit()))"
    ),
    "return find(''.join(chunks('/proc/<<grader>>/mem')))",
    "import os\nreturn find(''.join(chunks('/proc/%d/mem' % os.getppid())))",
    "return open('<<secret>>').read()",
    "import os\nreturn os.read(os.open('<<secret>>', os.O_RDONLY), 100).decode()",
    (
        "import os\nreturn os.pread(os.open('<<secret>>', os.O_RDONLY | os.O_CLOEXEC), 100, "
        "0).decode()"
    ),
    "import pathlib\nreturn pathlib.Path('<<secret>>').read_text()",
    "import io\nreturn io.FileIO('<<secret>>').read().decode()",
    "import codecs\nreturn codecs.open('<<secret>>').read()",
    (
        "import mmap, os\nreturn mmap.mmap(os.open('<<secret>>', 0), 0, "
        "prot=mmap.PROT_READ)[:].decode()"
    ),
    "import linecache\nreturn linecache.getline('<<secret>>', 1)",
    "import fileinput\nreturn next(fileinput.input('<<secret>>'))",
    "import tokenize\nreturn tokenize.open('<<secret>>').read()",
    "import numpy\nreturn numpy.fromfile('<<secret>>', dtype='u1').tobytes().decode()",
    (
        "import importlib.machinery\nreturn importlib.machinery.SourceFileLoader('m', "
        "'<<secret>>').get_data('<<secret>>').decode()"
    ),
    (
        "import sys\nsys.path.insert(0, '<<folder>>')\nimport secret_module\nreturn "
        "secret_module.VALUE"
    ),
    (
        "import ctypes\nl = ctypes.CDLL(None); b = "
        "ctypes.create_string_buffer(100)\nl.read(l.open(b'<<secret>>', 0), b, 100)\nreturn "
        "b.value.decode()"
    ),
    (
        "import ctypes\nl = ctypes.CDLL(None); b = "
        "ctypes.create_string_buffer(100)\nl.read(l.syscall(2, b'<<secret>>', 0), b, 100)\nreturn "
        "b.value.decode()"
    ),
    (
        "import ctypes\nl = ctypes.CDLL(None); b = "
        "ctypes.create_string_buffer(100)\nl.read(l.syscall(437, -100, b'<<secret>>', "
        "(ctypes.c_uint64 * 3)(), 24), b, 100)\nreturn b.value.decode()"
    ),
    (
        "import ctypes\nl = ctypes.CDLL(None); h = ctypes.create_string_buffer(200); h[0] = 128; m "
        "= ctypes.c_int()\nl.syscall(303, -100, b'<<secret>>', h, ctypes.byref(m), 0)\nf = "
        "l.syscall(304, 3, h, 0); b = ctypes.create_string_buffer(100); l.read(f, b, 100)\nreturn "
        "b.value.decode()"
    ),
    "return open('/proc/self/root<<secret>>').read()",
    "import os\nreturn open('/proc/%d/root<<secret>>' % os.getppid()).read()",
    "import os\nos.chdir('<<folder>>')\nreturn open('secret.txt').read()",
    (
        "import os\nd = os.open('<<folder>>', os.O_RDONLY)\nreturn os.read(os.open('secret.txt', "
        "os.O_RDONLY, dir_fd=d), 100).decode()"
    ),
    (
        "import os\nd = os.open('<<folder>>', os.O_PATH)\nreturn os.read(os.open('secret.txt', "
        "os.O_RDONLY, dir_fd=d), 100).decode()"
    ),
    "return open('<<link>>').read()",
    "import os\nos.symlink('<<secret>>', '/tmp/<<unique>>')\nreturn open('/tmp/<<unique>>').read()",
    "import os\nos.link('<<secret>>', '/tmp/<<unique>>')\nreturn open('/tmp/<<unique>>').read()",
    (
        "import sysconfig, os\nreturn open(os.path.relpath('<<secret>>', "
        "sysconfig.get_path('stdlib'))).read()"
    ),
    (
        "import sysconfig\nreturn open(sysconfig.get_path('stdlib') + "
        "'/../../../../../../../../..<<secret>>').read()"
    ),
    (
        "import shutil\nshutil.copy('<<secret>>', '/tmp/<<unique>>')\nreturn "
        "open('/tmp/<<unique>>').read()"
    ),
    (
        "import sqlite3\nreturn find(str(sqlite3.connect('file:<<secret>>?mode=ro&immutable=1', "
        "uri=True).execute('select 1').fetchall()))"
    ),
    (
        "import os\nfor fd in range(256):\n    try: data = os.read(fd, 1000)\n    except OSError: "
        "continue\n    if '<<prefix>>' in data.decode(errors='replace'): return "
        "find(data.decode(errors='replace'))"
    ),
    (
        "import os\nfor fd in range(256):\n    try: data = open('/proc/self/fd/%d' % "
        "fd).read(1000)\n    except OSError: continue\n    if '<<prefix>>' in data: return "
        "find(data)"
    ),
    "import os\nreturn find(str(os.listdir('<<folder>>')) + str(list(os.scandir('<<folder>>'))))",
    (
        "import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\nassert l.ptrace(16, "
        "os.getppid(), 0, 0) == 0\nreturn '<<never>>'"
    ),
    (
        "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nassert l.ptrace(16, <<victim>>, 0, "
        "0) == 0\nreturn '<<never>>'"
    ),
    (
        "import ctypes\nl = ctypes.CDLL(None, use_errno=True); b = "
        "ctypes.create_string_buffer(64)\nv = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 64); r = "
        "(ctypes.c_uint64 * 2)(ctypes.addressof(b), 64)\nassert l.process_vm_readv(<<grader>>, v, "
        "1, r, 1, 0) > 0\nreturn '<<never>>'"
    ),
    (
        "import ctypes, os\nl = ctypes.CDLL(None)\np = l.syscall(434, <<grader>>, 0)\nassert p >= "
        "0 and l.syscall(438, p, 0, 0) >= 0\nreturn '<<never>>'"
    ),
    "return open('/var/run/secrets/kubernetes.io/serviceaccount/token').read() and '<<never>>'",
    "return open('/etc/passwd').read() and '<<never>>'",
    "return open('/etc/shadow').read() and '<<never>>'",
    "import os\nreturn open('/proc/self/maps').read() and '<<never>>'",
    "import os\nreturn os.listdir('/proc') and '<<never>>'",
    "import os\nreturn os.listdir('/') and '<<never>>'",
    (
        "import ctypes\nassert ctypes.CDLL(None).syscall(425, 8, (ctypes.c_uint64 * 20)()) >= "
        "0\nreturn '<<never>>'"
    ),
    "import ctypes\nassert ctypes.CDLL(None).syscall(250, 0, 0, 0, 0, 0) >= 0\nreturn '<<never>>'",
    (
        "import ctypes\nassert ctypes.CDLL(None).syscall(321, 0, (ctypes.c_uint64 * 16)(), 128) >= "
        "0\nreturn '<<never>>'"
    ),
    (
        "import ctypes\nassert ctypes.CDLL(None).syscall(298, (ctypes.c_uint64 * 16)(), 0, -1, -1, "
        "0) >= 0\nreturn '<<never>>'"
    ),
    "import ctypes\nassert ctypes.CDLL(None).syscall(323, 0) >= 0\nreturn '<<never>>'",
    "import gc\nreturn find(''.join(map(str, gc.get_objects())))",
    (
        "import sys\nframe = sys._getframe()\nwhile frame:\n    found = find(str(frame.f_locals) + "
        "str(frame.f_globals))\n    if found: return found\n    frame = frame.f_back"
    ),
]
WRITING = [
    "open('<<folder>>/w', 'w').write('x')",
    "open('<<folder>>/a', 'a').write('x')",
    "open('<<folder>>/x', 'x').write('x')",
    "open('<<target>>', 'r+').write('x')",
    "open('<<target>>', 'w')",
    "import os\nos.open('<<target>>', os.O_RDONLY | os.O_TRUNC)",
    "import os\nos.open('<<folder>>/c', os.O_CREAT)",
    "import os\nos.write(os.open('<<folder>>', os.O_TMPFILE | os.O_RDWR), b'x')",
    "import os\nos.mkdir('<<folder>>/d')",
    "import os\nos.makedirs('<<folder>>/d/e')",
    "import os\nos.symlink('/etc', '<<folder>>/s')",
    "import os\nos.link('<<target>>', '<<folder>>/l')",
    "import os\nos.rename('<<target>>', '<<folder>>/r')",
    "import os\nos.replace('<<target>>', '<<folder>>/r')",
    "import os\nos.remove('<<target>>')",
    "import os\nos.rmdir('<<folder>>/empty')",
    "import os\nos.truncate('<<target>>', 0)",
    "import os\nos.chmod('<<target>>', 0)",
    "import os\nos.chown('<<target>>', 1, 1)",
    "import os\nos.utime('<<target>>', (0, 0))",
    "import os\nos.mkfifo('<<folder>>/f')",
    "import os, stat\nos.mknod('<<folder>>/n', stat.S_IFREG)",
    "import os\nos.setxattr('<<target>>', 'user.x', b'x')",
    "import shutil\nshutil.rmtree('<<folder>>')",
    "import shutil\nshutil.copytree('<<folder>>', '<<folder>>/copy')",
    "import shelve\nshelve.open('<<folder>>/shelf')['a'] = 1",
    "import sqlite3\nsqlite3.connect('<<folder>>/db').execute('create table t (a)')",
    (
        "import logging\nlogging.FileHandler('<<folder>>/log').emit(logging.makeLogRecord({'msg': "
        "'x'}))"
    ),
    "import pathlib\npathlib.Path('<<folder>>/p').write_text('x')",
    "import pathlib\npathlib.Path('<<folder>>/p').touch()",
    "import numpy\nnumpy.save('<<folder>>/n.npy', numpy.ones(3))",
    "import numpy\nnumpy.memmap('<<folder>>/m', dtype='u1', mode='w+', shape=10)[:] = 1",
    "import mmap, os\nm = mmap.mmap(os.open('<<target>>', os.O_RDWR), 0)\nm[0] = 1",
    "import ctypes\nctypes.CDLL(None).syscall(85, b'<<folder>>/creat', 0o644)",
    "import ctypes\nctypes.CDLL(None).syscall(257, -100, b'<<folder>>/openat', 0o101, 0o644)",
    (
        "import ctypes\nctypes.CDLL(None).syscall(437, -100, b'<<folder>>/openat2', "
        "(ctypes.c_uint64 * 3)(0o101, 0o644, 0), 24)"
    ),
    "import ctypes\nctypes.CDLL(None).syscall(2, b'<<folder>>/open', (1 << 40) | 0o101, 0o644)",
    "open('/dev/shm/<<unique>>', 'w').write('x')",
    "open('/tmp/<<unique>>', 'w').write('x')",
    "import tempfile\ntempfile.NamedTemporaryFile(delete=False, dir='<<folder>>').write(b'x')",
    (
        "import ctypes\nassert ctypes.CDLL(None).mount(b'none', b'<<folder>>/empty', b'tmpfs', 0, "
        "None) == 0\nopen('<<folder>>/empty/x', 'w')"
    ),
    "import ctypes\nctypes.CDLL(None).umount2(b'/tmp', 2)",
    "import os\nos.chroot('<<folder>>')\nopen('/chroot', 'w')",
    (
        "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == "
        "0\nopen('<<folder>>/unshared', 'w')"
    ),
    "import os, fcntl\nf = os.open(os.__file__, os.O_RDONLY)\nos.fchmod(f, 0o777)",
    "import os\nf = os.open(os.__file__, os.O_RDONLY)\nopen('/proc/self/fd/%d' % f, 'w').write('')",
    "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('<<folder>>/bound')",
    (
        "import os\nos.copy_file_range(os.open(os.__file__, 0), os.open('<<target>>', "
        "os.O_WRONLY), 10)"
    ),
    "import os\nos.memfd_create('m') and open('<<folder>>/memfd', 'w')",
    (
        "for p in ('/proc/sys/kernel/core_pattern', '/proc/self/oom_score_adj', "
        "'/sys/kernel/mm/ksm/run'):\n    open(p, 'w').write('1')"
    ),
]
NETWORK = [
    "import socket\nsocket.create_connection(('127.0.0.1', <<port>>), 1)",
    "import socket\ns = socket.socket(); s.connect(('127.0.0.1', <<port>>))",
    "import socket\ns = socket.socket(); s.connect_ex(('localhost', <<port>>))",
    "import socket\ns = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', <<port>>))",
    (
        "import socket\ns = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', "
        "<<udp>>))"
    ),
    (
        "import socket\ns = socket.socket(type=socket.SOCK_DGRAM); s.connect(('127.0.0.1', "
        "<<udp>>)); s.send(b'x')"
    ),
    "import socket\ns = socket.socket(socket.AF_UNIX); s.connect('<<unix>>')",
    "import socket\ns = socket.socket(socket.AF_UNIX); s.connect('\\x00<<abstract>>')",
    (
        "import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', "
        "'<<unix>>')"
    ),
    "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:<<port>>', timeout=1)",
    (
        "import http.client\nhttp.client.HTTPConnection('127.0.0.1', <<port>>, "
        "timeout=1).request('GET', '/')"
    ),
    "import asyncio\nasyncio.run(asyncio.open_connection('127.0.0.1', <<port>>))",
    "import smtplib\nsmtplib.SMTP('127.0.0.1', <<port>>, timeout=1)",
    "import ftplib\nftplib.FTP().connect('127.0.0.1', <<port>>, timeout=1)",
    "import xmlrpc.client\nxmlrpc.client.ServerProxy('http://127.0.0.1:<<port>>').f()",
    "import multiprocessing.connection\nmultiprocessing.connection.Client(('127.0.0.1', <<port>>))",
    "import socket\ns = socket.create_server(('127.0.0.1', 0)); s.accept()",
    (
        "import ctypes, socket, struct\nl = ctypes.CDLL(None); s = l.socket(2, 1, 0)\nl.connect(s, "
        "struct.pack('=H', 2) + struct.pack('>H', <<port>>) + bytes([127, 0, 0, 1]) + bytes(8), 16)"
    ),
    (
        "import ctypes, struct\nl = ctypes.CDLL(None); s = l.syscall(41, 2, 1, 0)\nl.syscall(42, "
        "s, struct.pack('=H', 2) + struct.pack('>H', <<port>>) + bytes([127, 0, 0, 1]) + bytes(8), "
        "16)"
    ),
    (
        "import socket, struct\nfor fd in range(3, 64):\n    try: socket.socket(socket.AF_INET, "
        "socket.SOCK_STREAM, fileno=fd).connect(('127.0.0.1', <<port>>))\n    except OSError: pass"
    ),
    (
        "import socket\ns = socket.fromfd(3, socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', "
        "'<<unix>>')"
    ),
    "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.send(b'x')",
    (
        "import socket\ns = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.bind((0, 0)); "
        "s.send(bytes(100))"
    ),
    "import socket\na, b = socket.socketpair()\nsocket.send_fds(a, [b'x'], [0])",
]
SIGNALS = [
    *(f"import os\nos.kill(os.getppid(), {number})" for number in (9, 15, 19, 2, 1)),
    *(f"import os\nos.kill(<<victim>>, {number})" for number in (9, 15, 19)),
    "import os\nos.kill(<<grader>>, 9)",
    "import os\nos.kill(-1, 9)",
    "import os\nos.kill(0, 9)",
    "import os\nos.killpg(os.getpgrp(), 9)",
    "import os\nos.killpg(os.getpgid(os.getppid()), 9)",
    "import signal\nsignal.raise_signal(signal.SIGKILL)",
    "import ctypes\nctypes.CDLL(None).syscall(200, <<victim>>, 9)",
    "import ctypes\nctypes.CDLL(None).syscall(234, <<victim>>, <<victim>>, 9)",
    (
        "import ctypes\nctypes.CDLL(None).syscall(129, <<victim>>, 9, (ctypes.c_uint64 * 16)(9, "
        "0xFFFFFFFF))"
    ),
    "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(<<victim>>), 9)",
    (
        "import fcntl, os, signal\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, <<victim>>); "
        "fcntl.fcntl(r, 10, 9)\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | "
        "os.O_NONBLOCK)\nos.write(w, b'x')"
    ),
    (
        "import fcntl, ctypes, os\nr, w = os.pipe()\nfcntl.ioctl(r, 0x8901, "
        "int(<<victim>>).to_bytes(4, 'little'))\nfcntl.ioctl(r, 0x5452, (1).to_bytes(4, "
        "'little'))\nos.write(w, b'x')"
    ),
    "import os\nos.setpgid(0, 0)",
    "import os\nos.setsid()\nwhile True: pass",
    "import resource\nresource.prlimit(<<victim>>, resource.RLIMIT_CPU, (0, 0))",
    "import resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
    "import os\nos.setpriority(os.PRIO_PROCESS, <<victim>>, 19)",
    "import os\nos.sched_setaffinity(<<victim>>, {0})",
    "import os\nos.setuid(65534)\nos.kill(<<victim>>, 9)",
    "import ctypes\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\nwhile True: pass",
    "import ctypes\nctypes.CDLL(None).syscall(157, 22, 1, 0, 0, 0)",
    "import ctypes\nctypes.CDLL(None).reboot(0x1234567)",
    "import ctypes\nctypes.string_at(0)",
    "import os\nos.abort()",
    "import sys\nsys.setrecursionlimit(10 ** 9)\ndef g(n): return max([n], key=g)\ng(1)",
    # The system calls of 32 bits have other numbers: 37 is kill there.
    (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes([0x53, 0xB8, 37, 0, "
        "0, 0, 0xBB]) + int(<<victim>>).to_bytes(4, 'little') + bytes([0xB9, 9, 0, 0, 0, 0xCD, "
        "0x80, 0x5B, "
        "0xC3]))\nctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()"
    ),
    "import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 62, <<victim>>, 9)",
]
FORGED = [
    "import sys\nsys.exit(0)",
    "raise SystemExit",
    "import os\nos._exit(0)",
    "quit()",
    "import atexit, os\natexit.register(os._exit, 0)",
    "class A:\n    def __eq__(self, other): return True\nreturn A()",
    (
        "class A(str):\n    def __eq__(self, other): return True\n    __hash__ = "
        "str.__hash__\nreturn A('x')"
    ),
    "class A(list):\n    def __eq__(self, other): return True\nreturn A()",
    "class A(dict):\n    def __eq__(self, other): return True\nreturn A()",
    "class A(tuple):\n    def __eq__(self, other): return True\nreturn A()",
    "class A(int):\n    def __eq__(self, other): return True\nreturn A()",
    "class A(float):\n    def __eq__(self, other): return True\nreturn A()",
    "class A:\n    __class__ = str\n    def __eq__(self, other): return True\nreturn A()",
    (
        "class M(type):\n    def __eq__(self, other): return True\nclass A(metaclass=M): "
        "pass\nreturn A"
    ),
    "from unittest import mock\nreturn mock.ANY",
    "import numpy\nreturn numpy.array(['<<prefix>>'])",
    "import builtins\nbuiltins.AssertionError = Exception\nbuiltins.str.__eq__ = lambda a, b: True",
    (
        "import ctypes, builtins\nbuiltins.len = lambda x: 1; builtins.set = lambda x: 1; "
        "builtins.all = lambda x: True"
    ),
    'import os\nos.write(3, b\'{"reward": 1.0, "status": "ok", "reason": ""}\')',
    (
        'import os\nfor fd in range(64):\n    try: os.write(fd, b\'\\n{"reward": 1.0, "status": '
        '"ok", "reason": ""}\\n{"ended": "ended", "code": 0}\\n\')\n    except OSError: pass'
    ),
    (
        "import os\nfor fd in range(64):\n    try: os.write(fd, b'\\0\\0\\0\\x0e{\"value\": true}' "
        "* 100)\n    except OSError: pass"
    ),
    "import os\nwhile True: os.write(3, b'\\xff' * 65536)",
    "import os\nos.close(3)",
    "import os\nos.dup2(1, 3)",
    (
        "import sys\nfor m in list(sys.modules.values()):\n    for n in list(vars(m)):\n        if "
        "n in ('run_verifier', 'grade_code', 'find_verifier'): setattr(m, n, lambda *a, **k: 1.0)"
    ),
    'import json\njson.dumps = lambda *a, **k: \'{"d": [["value", {"x": "Any"}]]}\'',
    (
        'import rollcast.tasks.sandbox.values as v\nv.encode = lambda value: b\'{"d": [["value", '
        '{"z": 1}]]}\''
    ),
    "import rollcast.tasks.sandbox.channel as c\nc.encode = lambda value: b'[' * 100000",
    (
        'import rollcast.tasks.sandbox.channel as c\nc.encode = lambda value: b\'{"d": [["value", '
        '{"i": [1]}], ["raised", "E"]]}\''
    ),
    (
        'import rollcast.tasks.sandbox.channel as c\nc.encode = lambda value: b\'{"d": [["value", '
        '{"n": "sNaN"}]]}\''
    ),
    "import socket\nsocket.socket(fileno=3).shutdown(2)",
    (
        "import signal, os\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(0)); "
        "signal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile True: pass"
    ),
]
FAMILIES = {
    "endless": ENDLESS,
    "memory": MEMORY,
    "processes": PROCESSES,
    "reading": READING,
    "writing": WRITING,
    "network": NETWORK,
    "signals": SIGNALS,
    "forged": FORGED,
}
_HELPERS = """
def find(text):
    start = text.find('<<prefix>>')
    return text[start : start + 40] if start >= 0 else None

def chunks(path):
    with open(path, 'rb') as file:
        for line in open(path.replace('mem', 'maps')):
            start, end = (int(part, 16) for part in line.split()[0].split('-'))
            file.seek(start)
            yield file.read(end - start).decode(errors='replace')
"""


def hostile_programs(filled: dict[str, object]) -> list[Hostile]:
    """All of them, with the real things in place."""
    programs = []
    for family, bodies in FAMILIES.items():
        for number, body in enumerate(bodies):
            attempt = textwrap.indent(body, " " * 8)
            source = (
                f"{_HELPERS}\ndef f(x):\n    try:\n{attempt}\n    except BaseException:\n        "
                "pass\n    return 2\n"
            )
            for name, value in (filled | {"unique": f"rollcast-hostile-{family}-{number}"}).items():
                source = source.replace(f"<<{name}>>", str(value))
            programs.append(Hostile(family, number, source))
    return programs
