"""A run whose services are started again when they end, as Kubernetes would."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis
import yaml

from rollcast.local.ports import free_port
from testkit.chaos.faults import GENERATORS, RunKind, signal_targets
from testkit.chaos.network import PROXIED_HOST, Network
from testkit.chaos.run_kinds import make_settings
from testkit.forecaster.prometheus_server import PROMETHEUS
from testkit.forked_programs import ForkedPrograms
from testkit.small_disk import small_disk
from testkit.system.faults import count_joined
from testkit.system.harness import System

DISK_BYTES = 512 << 20
"""Size of the run folder's disk: ten checkpoints of a tiny model. Filling it takes memory."""
RECOVERY_SECONDS = 240.0
"""Deadline of any single event, on a busy machine. Without a step for longer the run hangs."""
ORDERLY_CODES = (0, 1, 143)
"""Exit codes of services that end by themselves: done, to be tried again, or at SIGTERM."""
MAX_ENDS = 100
"""Ends in one run after which it is given up: a service that cannot start ends once a second."""
RUN = "chaos"


class HangError(Exception):
    """An awaited event did not come within its deadline."""


class Fleet:
    """`with Fleet(kind, folder, programs) as fleet`: the whole run works; all end at exit."""

    def __init__(self, kind: RunKind, folder: Path, programs: ForkedPrograms | None) -> None:
        self.kind = kind
        self.folder = folder
        self.mark = f"{time.time_ns() % 10**9:09}"
        """Digits by which leaks of this run are found."""
        self.network = Network()
        self.ends: list[dict[str, Any]] = []
        """Processes that ended, in order."""
        self.held_down: set[str] = set()
        """Services that a fault keeps from starting again."""
        self.has_small_disk = False
        self._struck: set[str] = set()
        self._log_sizes: dict[str, int] = {}
        self._started_at: dict[str, float] = {}
        self._mirrored_at = 0.0
        self._opened = ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        self.system = System(folder, self._make_settings(folder), programs)
        self.run_folder = self.system.run_folder

    def _make_settings(self, folder: Path) -> dict[str, Any]:
        settings = make_settings(self.kind, folder, self.mark)
        self._prometheus_port = free_port("127.0.0.1")
        if self.kind == "router replay":
            settings["grader"]["port"] = free_port("127.0.0.1")
        if "prometheus" in signal_targets(self.kind):
            url = f"http://127.0.0.1:{self._prometheus_port}"
            settings["forecaster"]["source"] = {"kind": "prometheus", "url": url}
        settings["trainer"]["http_port"] = free_port("127.0.0.1")
        return settings

    def __enter__(self) -> Fleet:
        with suppress(pytest.skip.Exception):  # without the right to mount no disk is filled
            self._opened.enter_context(small_disk(self.run_folder, DISK_BYTES))
            # As a run makes its folder
            self.run_folder.chmod(0o750)
            self.has_small_disk = True
        try:
            self._opened.enter_context(self.system)
            self._opened.callback(self.network.close)
            self._write_run_files()
            for name in self._starters():
                if name != "redis":
                    self._start(name)
            self.wait(lambda: self.works(2), "the first steps, with both generators")
        except BaseException:
            self._opened.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _write_run_files(self) -> None:
        """Each side has its own way to Redis, and generators a proxied way to the trainer."""
        system, network = self.system, self.network
        ports = {
            pair: network.open(pair, system.redis_port, is_mirror=False)
            for pair in ("redis-trainer", "redis-generators")
        }
        network.open("rpc", system.settings["rpc"]["port"])
        # Generators get the same host for the rendezvous of weight groups
        given = system.settings | {"rpc": system.settings["rpc"] | {"host": PROXIED_HOST}}
        trainer = given | {"redis": {"port": ports["redis-trainer"]}}
        system.config.write_text(yaml.safe_dump(trainer))
        for name in GENERATORS:
            generator = given["generator"] | {"http_port": free_port("127.0.0.1")}
            if self.kind == "endpoint":
                network.open("endpoint", generator["http_port"])
            settings = given | {
                "redis": {"port": ports["redis-generators"]},
                "generator": generator,
            }
            (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))

    def _starters(self) -> dict[str, Callable[[], None]]:
        """How each service of the run is started, by its name."""
        system = self.system
        config = ["--config", str(system.config)]
        targets = signal_targets(self.kind)
        ranks = str(sum(target.startswith("trainer ") for target in targets))
        # A free port for each start: the one of a killed launcher may still be bound
        starters: dict[str, Callable[[], None]] = {
            "redis": system.start_redis,
            "trainer": lambda: system.start_service(
                "trainer",
                "trainer.launch",
                [
                    *config,
                    "--resume",
                    f"--ranks={ranks}",
                    f"--main-port={free_port('127.0.0.1')}",
                ],
            ),
        }
        for service in ("forecaster", "autoscaler", "grader"):
            if service in targets:
                starters[service] = lambda service=service: system.start_service(  # type: ignore[misc]
                    service, service, config
                )
        if "prometheus" in targets and PROMETHEUS is not None:
            starters["prometheus"] = self._start_prometheus
        for name in GENERATORS:
            file = str(self.folder / f"{name}.yaml")
            starters[name] = lambda name=name, file=file: system.start_service(  # type: ignore[misc]
                name, "generator", ["--config", file, "--name", name]
            )
        return starters

    def _start_prometheus(self) -> None:
        folder = self.folder / "prometheus"
        folder.mkdir(exist_ok=True)
        target = f"127.0.0.1:{self.system.settings['trainer']['http_port']}"
        scrape = [{"job_name": "trainer", "static_configs": [{"targets": [target]}]}]
        file = folder / "prometheus.yml"
        # Once a second: faults last for seconds
        file.write_text(
            yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrape})
        )
        address = f"--web.listen-address=127.0.0.1:{self._prometheus_port}"
        data = f"--storage.tsdb.path={folder / 'data'}"
        command = [str(PROMETHEUS), f"--config.file={file}", data, address, "--log.level=error"]
        self.system._start("prometheus", command)

    def _start(self, name: str) -> None:
        log = self.folder / f"{name}.log"
        self._log_sizes[name] = log.stat().st_size if log.exists() else 0
        self._started_at[name] = time.monotonic()
        self._starters()[name]()

    def expect_end(self, name: str) -> None:
        """The next end of this service is a fault's."""
        self._struck.add(name)

    def forget_expected_ends(self) -> None:
        """The run works again: a later end is its own."""
        self._struck.clear()

    def tick(self) -> None:
        """Start ended services again, and put proxies before new listeners of the trainer."""
        for name, process in list(self.system.processes.items()):
            code = process.poll()
            is_paused = time.monotonic() - self._started_at.get(name, 0.0) < 1.0
            if code is None or is_paused or name in self.held_down:
                continue
            self._note_end(name, code)
            assert len(self.ends) <= MAX_ENDS, f"services ended {MAX_ENDS} times, {name} last"
            self._start(name)
        # Finding listeners takes milliseconds; a generator tries to join for a minute
        if self.kind != "store" and time.monotonic() - self._mirrored_at > 0.5:
            self._mirrored_at = time.monotonic()
            if (rank := self.find("trainer 0")) is not None:
                self.network.mirror_listeners("gloo store", rank)

    def _note_end(self, name: str, code: int) -> None:
        with (self.folder / f"{name}.log").open(errors="replace") as log:
            log.seek(self._log_sizes.get(name, 0))
            text = log.read()
        is_struck = name in self._struck
        self._struck.discard(name)
        is_orderly = code in ORDERLY_CODES and "Traceback (most recent call last)" not in text
        self.ends.append(
            {
                "name": name,
                "code": code,
                "at": time.time(),
                "is_struck": is_struck,
                "is_crash": not is_struck and not is_orderly,
                # The end of its log is enough to see why
                "log": [] if is_struck else re.sub(r"\s+\n", "\n", text[-1500:]).splitlines(),
            }
        )

    def wait(
        self, condition: Callable[[], Any], event: str, seconds: float = RECOVERY_SECONDS
    ) -> Any:
        """The first true value of `condition`. Raises HangError after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            self.tick()
            if value := condition():
                return value
            if time.monotonic() > deadline:
                raise HangError(f"{event} did not happen within {seconds:.0f} s")
            time.sleep(0.05)

    def sleep(self, seconds: float) -> None:
        """Let a fault last; services that it ends are started again meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.tick()
            time.sleep(0.05)

    @contextmanager
    def holding_down(self, name: str) -> Iterator[None]:
        self.held_down.add(name)
        try:
            yield
        finally:
            self.held_down.discard(name)

    def works(self, step: int) -> bool:
        """Whether the step is made and both generators are members."""
        return self.system.last_step >= step and count_joined(self.system) == len(GENERATORS)

    def page(self, service: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """The samples of a metrics page; empty while it cannot be read."""
        with suppress(httpx.HTTPError, OSError, ValueError):
            return self.system.metrics(service)
        return {}

    def metric(self, service: str, name: str) -> float:
        """The sum of a metric over its labels."""
        return sum(value for (metric, _), value in self.page(service).items() if metric == name)

    def redis(self) -> redis.Redis:
        """A client past the proxies."""
        return redis.Redis(port=self.system.redis_port, socket_timeout=5.0)

    def owner(self, target: str) -> str:
        """The service that a target is, or is a child of."""
        if target.startswith("trainer "):
            return "trainer"
        if target in ("fork server", "environment", "harness"):
            return GENERATORS[1]
        return target.removesuffix(" engine")

    def find(self, target: str) -> psutil.Process | None:
        """The process of a target; None = it is not there."""
        with suppress(psutil.Error, KeyError, IndexError):
            process = psutil.Process(self.system.processes[self.owner(target)].pid)
            children = process.children(recursive=True)
            if target.startswith("trainer "):
                rank = int(target.removeprefix("trainer "))
                return sorted(process.children(), key=psutil.Process.create_time)[rank]
            if target.endswith(" engine"):
                return find_engine(children)
            if target == "fork server":
                return _first(children, "python_processes.fork_server")
            if target == "environment":
                server = _first(children, "python_processes.fork_server")
                return server.children()[0] if server else None
            if target == "harness":
                return _first(children, "harness_program.py")
            return process
        return None


def find_engine(children: list[psutil.Process]) -> psutil.Process | None:
    """The engine's process among those of a generator: its KV cache is most of their memory.

    One that is forked has its parent's name and arguments.
    """
    sizes = {}
    for process in children:
        with suppress(psutil.Error):
            sizes[process] = process.memory_info().rss
    return max(sizes, key=sizes.__getitem__) if sizes else None


def _first(processes: list[psutil.Process], words: str) -> psutil.Process | None:
    for process in processes:
        with suppress(psutil.Error):
            if words in " ".join(process.cmdline()) and process.pid != os.getpid():
                return process
    return None
