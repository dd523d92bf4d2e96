"""The system calls that a judge and a program may make; every other one fails with EPERM.

The list names allowed calls, not forbidden ones: calls that a future kernel adds fail until they
are listed here. No call here can open a file for writing, start a process or thread, reach another
process, or make a socket.
"""

import contextlib
import errno
import fcntl
import os
import socket
import termios

from seccompy import Action, ArgCmp, CmpOp, Filter

_COMPUTING = (
    "brk", "mmap", "mprotect", "munmap", "mremap", "membarrier", "futex", "sched_yield", "rseq",
    "set_robust_list", "get_robust_list", "set_tid_address", "arch_prctl", "getrandom", "exit",
    "exit_group",
)  # fmt: skip
_TIME = (
    "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time",
    "times", "getrusage", "alarm", "getitimer", "setitimer", "timer_create", "timer_settime",
    "timer_gettime", "timer_delete", "pause",
)  # fmt: skip
_OWN_SIGNALS = (
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigsuspend",
    "rt_sigtimedwait", "sigaltstack", "restart_syscall",
)  # fmt: skip
_ABOUT_ITSELF = (
    "getpid", "getppid", "gettid", "getpgrp", "getpgid", "getsid", "getuid", "geteuid", "getgid",
    "getegid", "getresuid", "getresgid", "getgroups", "getcwd", "uname", "sysinfo", "getrlimit",
    "sched_getaffinity", "getcpu", "umask",
)  # fmt: skip
_OPEN_FILES = (
    "read", "readv", "pread64", "preadv", "write", "writev", "lseek", "close", "close_range", "dup",
    "dup2", "dup3", "fstat", "fstatfs", "fsync", "fdatasync", "ftruncate", "pipe", "pipe2", "poll",
    "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait",
    "epoll_pwait", "eventfd", "eventfd2", "fadvise64", "getdents", "getdents64",
)  # fmt: skip
_LOOKING_UP = (
    "stat", "lstat", "newfstatat", "statx", "statfs", "access", "faccessat", "faccessat2",
    "readlink", "readlinkat", "chdir", "fchdir",
)  # fmt: skip
_CONVERSING = ("sendmsg", "sendto", "recvmsg", "recvfrom", "getsockopt", "getsockname", "shutdown")

_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_PATH
_FCNTL = (
    fcntl.F_DUPFD,
    fcntl.F_DUPFD_CLOEXEC,
    fcntl.F_GETFD,
    fcntl.F_SETFD,
    fcntl.F_GETFL,
    fcntl.F_SETFL,
)
"""Not F_SETOWN and F_SETSIG: they send a signal of one's choice to a process of one's choice."""
_IOCTL = (
    termios.TCGETS,
    termios.TIOCGWINSZ,
    termios.FIONREAD,
    termios.FIONBIO,
    termios.FIOCLEX,
    termios.FIONCLEX,
)


def program_filter() -> Filter:
    """Calls of programs that a model wrote: compute, read what Landlock shows, use descriptors it
    was given.
    """
    allowed = Filter(default=int(Action.ERRNO) | errno.EPERM)
    for name in (*_COMPUTING, *_TIME, *_OWN_SIGNALS, *_ABOUT_ITSELF, *_OPEN_FILES, *_LOOKING_UP):
        with contextlib.suppress(KeyError, ValueError):  # some calls exist on one architecture only
            allowed.allow(name)
    for name, flags in (("open", 1), ("openat", 2)):
        with contextlib.suppress(KeyError, ValueError):
            allowed.allow(name, args=[ArgCmp(flags, CmpOp.MASKED_EQ, os.O_RDONLY, _WRITING)])
    for command in _FCNTL:
        allowed.allow("fcntl", args={1: command})
    for command in _IOCTL:
        allowed.allow("ioctl", args={1: command})
    allowed.allow("prlimit64", args={0: 0, 2: 0})  # read one's own limits
    # Advice from this value on breaks memory, which root could do to the whole machine
    allowed.allow("madvise", args=[ArgCmp(2, CmpOp.LT, 100)])
    # The C library falls back to calls that can be filtered by their arguments.
    for name in ("clone3", "openat2"):
        allowed.errno(name, errno.ENOSYS)
    return allowed


def judge_filter() -> Filter:
    """Calls of judges: in addition, talk over the sockets it has and make pairs of its own to hand
    to a program.
    """
    allowed = program_filter()
    for name in _CONVERSING:
        allowed.allow(name)
    allowed.allow("socketpair", args={0: int(socket.AF_UNIX)})
    return allowed
