"""A real engine on CPU, shared by the tests of a module, with weights that tests set from files."""

from __future__ import annotations

import asyncio
import random
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
from testkit.tiny_model import make_tiny_model, perturbed
from testkit.uncompiled import UNCOMPILED


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
    """Weights by version, on disk for the engine and in memory for the replay."""

    def __init__(self, engine: Any, model_path: Path, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self.engine = engine
        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self.base = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.weights: dict[PolicyVersion, dict[str, Any]] = {}
        self.folder = folder

    def prepare(self, step: int, incarnation: int = 1) -> tuple[PolicyVersion, Path]:
        """The version and its file, made if need be."""
        from safetensors.torch import save_file

        version = PolicyVersion(incarnation, step)
        path = self.folder / f"{version}.safetensors"
        if version not in self.weights:
            self.weights[version] = perturbed(self.base, seed=1000 * incarnation + step)
            save_file(self.weights[version], path)
        return version, path

    async def apply(self, step: int, incarnation: int = 1) -> float:
        version, path = self.prepare(step, incarnation)
        pause: float = await self.engine.update(version, "load_file", str(path))
        return pause

    def largest_gap(self, rollout: Rollout, task: PromptTask) -> float:
        """Of |generator - replay| over the rollout's sampled tokens."""
        replayed = replay_logprobs(
            rollout, task.prompt_token_ids.tolist(), self.weights, self.model, task.sampling.temperature
        )
        return float(abs(replayed - rollout.logprobs).max())


@pytest.fixture(scope="module")
def run_config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("generator")
    make_tiny_model(folder / "model")
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


@pytest.fixture(scope="module")
def more_engine_arguments() -> dict[str, Any]:
    """What a module wants of vLLM beyond the run file."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def versions(
    run_config: RunConfig, more_engine_arguments: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Versions]:
    from rollcast.generator.vllm import engine_start
    from rollcast.generator.vllm.engine import Engine

    engine_start.set_environment(run_config.generator)
    arguments = engine_start.engine_arguments(run_config, "test") | more_engine_arguments
    arguments["worker_extension_cls"] = "tests.generator.file_worker.FileWorker"
    patch = pytest.MonkeyPatch()
    patch.setattr(engine_start, "engine_arguments", lambda config, name: arguments)
    with forked_engines():
        engine = await Engine.start(run_config, "test")
    yield Versions(engine, Path(run_config.model.path), tmp_path_factory.mktemp("versions"))
    engine.shutdown()
    patch.undo()


def random_prompt(seed: int, num_tokens: int = 40) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(3, 50) for _ in range(num_tokens)]


async def sample_all(
    versions: Versions, task: PromptTask, starts: list[Rollout | None], updates: list[int], pause: float = 0.05
) -> list[Rollout]:
    """All rollouts of a task, with weight updates while they run."""
    from rollcast.generator.sampling import RolloutSampler

    samplers = [RolloutSampler(versions.engine, task, index, start) for index, start in enumerate(starts)]
    running = [asyncio.create_task(sampler.run()) for sampler in samplers]
    for step in updates:
        await asyncio.sleep(pause)
        await versions.apply(step)
    await asyncio.wait_for(asyncio.gather(*running), 60)
    await versions.engine.observe()
    return [sampler.rollout() for sampler in samplers]


def make_task(
    sequence: int, prompt: list[int], length: LengthBudget, *, rollouts: int = 4, temperature: float = 1.0
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
