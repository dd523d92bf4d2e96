"""Real engines on CPU with weights that tests set from files: one of each kind for all tests of a
process.

Whoever uses one runs in the session's event loop: `pytest.mark.asyncio(loop_scope="session")`.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.rollouts.records import LengthBudget, PromptTask, Purpose, Rollout, Sampling
from rollcast.wire.version import PolicyVersion
from testkit.generator.forked_engines import forked_engines
from testkit.replay import replay_logprobs
from testkit.tiny_model import make_tiny_model, perturb
from testkit.uncompiled import UNCOMPILED

FIRST_INCARNATION = 1
"""Of a trainer that publishes over wire 2; versions that tests set from files come after it."""

SEED_OF_STEP_0 = 1000
"""Of the noise in a version's weights; those of later steps follow."""

TIGHT: dict[str, Any] = {
    "num_gpu_blocks_override": 24,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 16,
}
"""Room for 23 blocks of 32 tokens, prefilled in chunks of at most 64 tokens for all requests
together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """vLLM and its dependencies warn at import, and its start takes long on a busy machine."""
    for item in items:
        if item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.filterwarnings("default"))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="module", autouse=True)
def uncompiled() -> Iterator[None]:
    """Engines compile nothing: torch's compiler costs each more than all that is sampled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UNCOMPILED, "1")
        yield


@pytest.fixture(scope="module")
def compiled(uncompiled: None) -> Iterator[None]:
    """As a run's engines are: for what is shown of their numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(UNCOMPILED)
        yield


class Versions:
    """An engine with its weights by version, on disk for the engine and in memory
    for the replay.
    """

    def __init__(self, engine: Any, config: RunConfig, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self.engine = engine
        self.config = config
        # The kernel that caps scores, for models that do so.
        self.model = AutoModelForCausalLM.from_pretrained(
            config.model.path, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self.base = {name: value.clone() for name, value in self.model.state_dict().items()}
        if self.model.config.tie_word_embeddings:
            del self.base["lm_head.weight"]
        self.weights: dict[PolicyVersion, dict[str, Any]] = {}
        self.folder = folder
        self.incarnation = FIRST_INCARNATION

    @classmethod
    async def start(
        cls, config: RunConfig, folder: Path, *, is_compiled: bool = False, **arguments: Any
    ) -> Versions:
        """`arguments`: of vLLM's engine, beyond the run file.

        An engine that compiles nothing starts sooner.
        """
        from rollcast.generator.vllm import engine_start
        from rollcast.generator.vllm.engine import Engine

        engine_start.set_environment(config.generator)
        passed = engine_start.engine_arguments(config, "test") | arguments
        passed["worker_extension_cls"] = "tests.generator.failing_worker.FailingWorker"
        with pytest.MonkeyPatch.context() as patch, forked_engines():
            patch.setattr(engine_start, "engine_arguments", lambda config, name: passed)
            if is_compiled:
                patch.delenv(UNCOMPILED, raising=False)
            else:
                patch.setenv(UNCOMPILED, "1")
            engine = await Engine.start(config, "test")
        return cls(engine, config, folder)

    async def begin(self) -> None:
        """Begin another test: its versions are of an incarnation of their own, so nothing cached
        before is reused.
        """
        for path in self.folder.glob("*.safetensors"):
            path.unlink()
        self.weights.clear()
        self.incarnation += 1
        await self.engine.observe()
        await self.apply(0)

    def prepare(self, step: int) -> tuple[PolicyVersion, Path]:
        """The version and its file, made if need be."""
        from safetensors.torch import save_file

        version = PolicyVersion(self.incarnation, step)
        path = self.folder / f"{version}.safetensors"
        if version not in self.weights:
            self.weights[version] = perturb(self.base, SEED_OF_STEP_0 + step)
            save_file(self.weights[version], path)
        return version, path

    async def apply(self, step: int) -> float:
        version, path = self.prepare(step)
        pause: float = await self.engine.update(version, "load_file", str(path))
        return pause

    def largest_gap(self, rollout: Rollout, task: PromptTask) -> float:
        """Of |generator - replay| over the rollout's sampled tokens."""
        replayed = replay_logprobs(
            rollout,
            task.prompt_token_ids.tolist(),
            self.weights,
            self.model,
            task.sampling.temperature,
        )
        return float(abs(replayed - rollout.logprobs).max())


class SharedEngine:
    """One engine for all tests of a process that need its kind; a test that ends it leaves the next
    one a new start.
    """

    def __init__(self, folder: Path, **arguments: Any) -> None:
        make_tiny_model(folder / "model")
        self._folder = folder
        self._arguments = arguments
        self._versions: Versions | None = None

    async def versions(self) -> Versions:
        """For one test: the engine holds step 0 of an incarnation that no other test has."""
        if self._versions is not None and self._versions.engine.failed:
            self.shutdown()
        if self._versions is None:
            self._versions = await Versions.start(
                small_run(self._folder), self._folder, **self._arguments
            )
        await self._versions.begin()
        return self._versions

    def shutdown(self) -> None:
        if self._versions is not None:
            self._versions.engine.shutdown()
        self._versions = None


def small_run(folder: Path) -> RunConfig:
    """A run of the model in `folder`."""
    return parse_run_config(
        {
            "run": "test",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "dtype": "float32", "max_length": 512},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 128,
                "max_completion_tokens": 384,
                "rollouts_per_prompt": 4,
            },
            "generator": {"slots": 32, "block_size": 32},
        },
        source="test",
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def roomy_engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedEngine]:
    """As a run has it, but a prompt is computed in several steps, between which versions change."""
    engine = SharedEngine(tmp_path_factory.mktemp("roomy"), max_num_batched_tokens=64)
    yield engine
    engine.shutdown()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def tight_engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedEngine]:
    engine = SharedEngine(tmp_path_factory.mktemp("tight"), **TIGHT)
    yield engine
    engine.shutdown()


@pytest_asyncio.fixture(loop_scope="session")
async def versions(roomy_engine: SharedEngine) -> Versions:
    """Of the engine that holds all rollouts of a test at once."""
    return await roomy_engine.versions()


@pytest_asyncio.fixture(loop_scope="session")
async def tight_versions(tight_engine: SharedEngine) -> Versions:
    """Of the engine whose memory is too small for the rollouts of a test."""
    return await tight_engine.versions()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """For temporary files; pytest's own folders are too deep for the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="orphans-") as name:
        yield Path(name)


def random_prompt(seed: int, num_tokens: int = 40) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(3, 50) for _ in range(num_tokens)]


async def sample_all(
    versions: Versions,
    task: PromptTask,
    starts: list[Rollout | None],
    updates: list[int],
    pause: float = 0.05,
) -> list[Rollout]:
    """All rollouts of a task, with weight updates while they run."""
    from rollcast.generator.sampling import RolloutSampler

    samplers = [
        RolloutSampler(versions.engine, task, index, start) for index, start in enumerate(starts)
    ]
    running = [asyncio.create_task(sampler.run()) for sampler in samplers]
    for step in updates:
        await asyncio.sleep(pause)
        await versions.apply(step)
    await asyncio.wait_for(asyncio.gather(*running), 60)
    await versions.engine.observe()
    return [sampler.rollout() for sampler in samplers]


def make_task(
    sequence: int,
    prompt: list[int],
    length: LengthBudget,
    *,
    rollouts: int = 4,
    temperature: float = 1.0,
) -> PromptTask:
    import numpy as np

    return PromptTask(
        sequence=sequence,
        incarnation=1,
        purpose=Purpose.TRAIN,
        dataset="test",
        prompt_id=str(sequence),
        prompt_token_ids=np.asarray(prompt, dtype=np.int32),
        num_rollouts=rollouts,
        sampling=Sampling(temperature=temperature),
        length=length,
        verifier="arithmetic",
        reference='"1"',
    )
