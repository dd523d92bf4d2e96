"""How the tests share a machine: what runs in one process, what starts first, and which are quick.

    make quick   --quick: none of SLOW, nothing that is marked for an engine, a browser or a whole system
    make test    all of them, -n 3: groups of tests, handed out to three processes in the order of SLOW

Three, for two cores: whole systems wait for their parts to start and to end, and tests of services for their deadlines.
So a test waits generously, and does not say that something was quick. How long an example takes never fails a test:
machines are shared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from testkit.forked_programs import SERVICES, SYSTEM, ForkedPrograms

# As many processes as cores, or more: one thread each. Before any test imports torch, which reads it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("unhurried", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)  # for `make quick`: a fifth of hypothesis' own
settings.load_profile("unhurried")

TESTS = Path(__file__).parent
SLOW = (
    "system",
    "chart/test_runs_locally.py",
    "chart/test_built_images.py",
    "monitoring/test_queries.py",
    "generator/test_exactness.py",
    "forecaster/test_page.py",
    "generator",
    "test_types.py",
    "trainer/test_machines.py",
    "trainer/test_last_reading.py",
    "weights/test_faults.py",
    "gpu/test_parts.py",
    "trainer/test_teacher_vllm.py",
    "chart",
    "monitoring",
    "autoscaler/test_service.py",
    "forecaster",
    "grader",
    "local",
    "tasks/test_code.py",
    "environments/test_openenv.py",
    "environments/test_verifiers.py",
    "cli",
    "tasks/test_busy_machine.py",
    "documents/test_commands.py",
    "curves/formats/test_hostile_files.py",
    "tasks/test_sandbox.py",
    "test_contributing.py",
    "gpu/test_system.py",
    "gpu/test_deadline.py",
    "gpu/test_pack.py",
    "gpu/test_one_card.py",
    "gpu/test_first_token.py",
    "gpu/test_publishing.py",
    "push",
    "loggers/test_destinations.py",
    "loggers/test_service.py",
    "tasks/test_hanging_answers.py",
    "curves/formats/test_damaged_files.py",
    "curves/test_one_forecast.py",
    "curves/test_curve_file.py",
    "curves/test_foreign_curve.py",
    "curves/test_truncation.py",
    "config/test_wrong_run_files.py",
    "tasks/test_sandbox_hostile.py",
    "connections",
    "tasks/test_own_verifiers.py",
    "tasks/test_reward_signatures.py",
    "scaling/test_decisions.py",
    "recipe/test_ratios.py",
    "tasks/test_code_cases.py",
    "tasks/test_math_verifier.py",
    "python",
    "curves/test_reading.py",
    "scaling/test_curve_families.py",
    "scaling/test_misfit.py",
    "curves/test_columns.py",
    "trainer/test_evaluation.py",
    "trainer/test_pass_rate.py",
    "trainer/test_router_replay.py",
    "scaling/test_advice.py",
    "scaling/test_size_choice.py",
    "tasks/test_mappings.py",
    "test_requirements.py",
    "test_notebooks.py",
    "trainer/test_mixture_run.py",
    "tasks/test_remote_verifiers.py",
    "simulation/test_split.py",
    "weights",
    "autoscaler",
    "trainer/test_launch.py",
    "scaling/test_verdict.py",
    "rollouts/test_outages.py",
    "trainer/test_two_ranks.py",
    "trainer/test_lora.py",
    "trainer/test_own_loss.py",
    "trainer/test_replicas.py",
    "trainer/test_out_of_memory.py",
    "trainer/test_sharded_start.py",
    "scaling/test_shapes.py",
    "scaling/test_leave_one_out.py",
    "trainer/test_regularised_update.py",
    "trainer/test_architectures.py",
    "test_forked_programs.py",
    "trainer/test_early_stop.py",
    "simulation/test_pipeline.py",
    "scaling/test_world_prior.py",
    "memory/test_step.py",
    "memory/test_weight_shapes.py",
    "trainer/test_layers.py",
    "scaling/test_forecast.py",
    "trainer/test_controller.py",
    "trainer/test_resumption.py",
    "rollouts/test_hostile_entries.py",
    "trainer/test_run_files.py",
    "trainer/test_checkpoint.py",
    "trainer/test_model.py",
    "scaling/test_posterior.py",
    "rollouts/test_life_cycle.py",
    "simulation/test_gate_properties.py",
    "tasks/test_rows.py",
    "telemetry",
    "test_layers.py",
)
"""Files and folders that start processes or compute for long, the longest first. Not part of `make quick`.

Files that grade in sandboxes stand apart: gradings of one machine share a lock for each core, and three such files at
once would wait for one another.
"""
SYSTEMS = 4
"""The first so many of SLOW run whole systems: what is marked `system`."""
SLOW_MARKS = ("engine", "system", "gpu", "cluster", "browser", "index")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what starts engines, systems, charts or servers")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        settings.load_profile("quick")


@cache  # asked of each test, and there are thousands in a few hundred files
def place(path: Path) -> int:
    """Index in SLOW of a test file, or of a folder that it is in; len(SLOW) for a quick one."""
    name = path.relative_to(TESTS).as_posix()
    return next((index for index, slow in enumerate(SLOW) if name == slow or name.startswith(f"{slow}/")), len(SLOW))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("quick") and place(collection_path) < len(SLOW) else None


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist tells no types
    """Which tests one process runs, one after the other.

    A file is one group, so that what its module or session fixtures started serves all of its tests. The systems with
    faults are one group: each keeps a core busy by itself, and two at once would only wait for each other's deadlines.
    Those of the chart and the dashboards have no fault that must be seen in time, and run beside them.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0]).relative_to(TESTS.name)
        return SLOW[0] if place(TESTS / file) == 0 else file.as_posix()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    config.option.loadscopereorder = False  # the order is that of SLOW, not by number of tests
    return Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first: the systems keep one process busy, the others take the rest."""
    if config.getoption("quick"):
        slow = [item for item in items if any(item.get_closest_marker(mark) for mark in SLOW_MARKS)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    for item in items:
        assert (item.get_closest_marker("system") is None) == (place(item.path) >= SYSTEMS), item.nodeid
    if hasattr(config, "workerinput"):  # a process of xdist
        items.sort(key=lambda item: place(item.path))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPrograms]:
    """What the programs of whole systems are forked of, once a test process has need of one."""
    with ForkedPrograms(tmp_path_factory.mktemp("forked"), SYSTEM) as programs:
        yield programs


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPrograms]:
    """The same for services without torch."""
    with ForkedPrograms(tmp_path_factory.mktemp("services"), SERVICES) as services:
        yield services
