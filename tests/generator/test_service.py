"""The generator as a process, with real Redis and a real publisher: from waiting for weights to a
drain.

Another one goes on with what was handed back, outlives its trainer, begins what is lost again, and
is killed.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.generator.vllm.engine_warden import HELD
from rollcast.local.ports import free_port
from rollcast.rollouts.records import LengthBudget, PromptTask, Rollout, RolloutGroup
from rollcast.telemetry.failure_reason import failure_reason
from rollcast.wire.version import PolicyVersion
from testkit.forked_programs import ForkedPrograms
from testkit.generator.trainer_end import GeneratorProcess, TrainerEnd
from testkit.replay import replay_logprobs
from testkit.rollouts.servers import Server, find_server
from testkit.tiny_model import make_tiny_model
from tests.generator.conftest import make_task, random_prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

TOLERANCE = 1e-4
LOST = {
    sequence: make_task(sequence, random_prompt(sequence), LengthBudget(3000), temperature=0.2)
    for sequence in (21, 22)
}
"""At work when the weights of their first tokens are lost. So cold that none ends early: that takes
some seconds."""


@pytest.fixture
def config(tmp_path: Path) -> Iterator[RunConfig]:
    server = Server(find_server("6.2"), tmp_path)
    server.start()
    make_tiny_model(tmp_path / "model", max_length=4096)
    yield parse_run_config(
        {
            "run": "service",
            "folder": str(tmp_path / "runs"),
            "model": {"path": str(tmp_path / "model"), "dtype": "float32", "max_length": 4096},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 128,
                "max_completion_tokens": 1900,
                "rollouts_per_prompt": 4,
            },
            "tasks": {"evaluation": {"rollouts_per_prompt": 4}},
            "generator": {"slots": 16, "block_size": 32, "drain_seconds": 0.0},
            "weights": {"coalesce_seconds": 0.1},
            "redis": {"port": server.port},
            "rpc": {"port": free_port("127.0.0.1")},
        },
        source="test",
    )
    server.stop()


def gap(rollout: Rollout, task: PromptTask, trainer: TrainerEnd) -> float:
    replayed = replay_logprobs(
        rollout,
        task.prompt_token_ids.tolist(),
        trainer.weights,
        trainer.model,
        task.sampling.temperature,
    )
    return float(abs(replayed - rollout.logprobs).max())


def test_from_waiting_for_weights_to_a_drain_that_another_generator_continues_to_its_violent_death(
    config: RunConfig, tmp_path: Path, programs: ForkedPrograms
) -> None:
    from transformers import AutoModelForCausalLM

    path = tmp_path / "resolved.json"
    write_resolved(config, path)
    model = AutoModelForCausalLM.from_pretrained(config.model.path).eval()
    trainers = [TrainerEnd(config, model)]
    generators = [GeneratorProcess(config, path, "a", programs)]
    try:
        check_it_waits_for_weights_and_is_exact(generators[0], trainers[0])
        tasks = check_it_drains(generators[0], trainers[0])
        generators.append(GeneratorProcess(config, path, "b", programs))
        check_it_continues(trainers[0], tasks)
        generators[1].wait_until(generators[1].is_ready)
        check_its_trainer_goes(generators[1], trainers[0])
        trainers.append(TrainerEnd(config, model, incarnation=2, history=[(1, 3)]))
        check_it_begins_again_what_is_lost(generators[1], trainers[1])
        check_it_claims_nothing_without_a_trainer(generators[1], trainers[1])
        engines = psutil.Process(generators[1].process.pid).children(recursive=True)
        assert engines
        generators[1].process.kill()
        _, alive = psutil.wait_procs(engines, timeout=60)
        assert not alive, "kill -9 leaves no engine process behind"
        assert "Traceback" not in "".join(generator.log.read_text() for generator in generators)
    finally:
        for generator in generators:
            generator.end()
        trainers[-1].close()


def test_an_engine_that_was_killed_is_named_with_its_signal(
    config: RunConfig, tmp_path: Path, programs: ForkedPrograms
) -> None:
    """vLLM's front end says only that there is a stack trace above, and there is none."""
    from transformers import AutoModelForCausalLM

    path = tmp_path / "resolved.json"
    write_resolved(config, path)
    trainer = TrainerEnd(config, AutoModelForCausalLM.from_pretrained(config.model.path).eval())
    generator = GeneratorProcess(config, path, "a", programs)
    try:
        trainer.publish(1)
        trainer.queue.dispatch(
            [make_task(1, random_prompt(1), LengthBudget(3000), temperature=0.2)]
        )
        generator.wait_for_port()
        generator.wait_until(lambda: len(trainer.queue.outstanding().claims) == 1)
        children = psutil.Process(generator.process.pid).children()
        (engine,) = [
            child
            for child in children
            if any(Path(file.path).name == HELD for file in child.open_files())
        ]
        engine.kill()
        assert generator.process.wait(60) == 1
    finally:
        generator.end()
        trainer.close()
    said = generator.log.read_text()
    assert failure_reason(said) is not None
    assert "the engine's process was killed by SIGKILL" in str(failure_reason(said)), said[-3000:]


def check_it_waits_for_weights_and_is_exact(
    generator: GeneratorProcess, trainer: TrainerEnd
) -> None:
    tasks = {
        sequence: make_task(sequence, random_prompt(sequence), LengthBudget(200))
        for sequence in (1, 2, 3)
    }
    trainer.queue.dispatch(list(tasks.values()))
    generator.wait_for_port()
    time.sleep(1.0)
    assert generator.get("/healthz").status_code == generator.get("/startz").status_code == 200
    assert generator.get("/readyz").status_code == 503
    assert len(trainer.queue.outstanding().waiting) == 3, (
        "it must not answer with weights of its own"
    )

    trainer.publish(1)
    for step in range(2, 6):
        assert trainer.publisher.wait_acknowledged(step - 1, 60.0)
        trainer.publish(step)
        time.sleep(0.1)
    generator.wait_until(generator.is_ready)
    for group in taken(trainer, 3):
        assert group.generator.startswith("a-")
        for rollout in group.rollouts:
            assert gap(rollout, tasks[group.sequence], trainer) < TOLERANCE


def check_it_drains(generator: GeneratorProcess, trainer: TrainerEnd) -> dict[int, PromptTask]:
    """SIGTERM while it works on four tasks, which are returned."""
    tasks = {
        sequence: make_task(sequence, random_prompt(sequence), LengthBudget(1500, seed=1))
        for sequence in (11, 12, 13, 14)
    }
    for task in tasks.values():
        task.prompt_token_ids[0] = 40
    trainer.queue.dispatch(list(tasks.values()))
    generator.wait_until(lambda: len(trainer.queue.outstanding().claims) == 4)
    time.sleep(0.3)
    trainer.publish(6)
    assert trainer.publisher.wait_acknowledged(6, 60.0)
    generator.wait_until(lambda: trainer.publisher.members()[0].decode_tokens_per_second > 1.0)
    metrics = generator.get("/metrics").text
    assert re.search(r'rollcast_policy_step{generator="a-\w+",run="service"} 6.0', metrics)
    assert 'rollcast_weight_pause_seconds_count{run="service"}' in metrics
    generator.process.send_signal(signal.SIGTERM)
    assert generator.process.wait(60) == 0, generator.log.read_text()[-3000:]
    outstanding = trainer.queue.outstanding()
    assert not outstanding.claims
    assert {item.attempt for item in outstanding.waiting.values()} <= {0}
    assert any(item.first_version for item in outstanding.waiting.values()), (
        "nothing was handed back with tokens"
    )
    return tasks


def check_it_continues(trainer: TrainerEnd, tasks: dict[int, PromptTask]) -> None:
    groups = taken(trainer, 4)
    assert any(group.hand_backs for group in groups)
    for group in groups:
        for rollout in group.rollouts:
            assert not rollout.partial
            assert gap(rollout, tasks[group.sequence], trainer) < TOLERANCE
        if group.generator.startswith("b-"):
            assert group.hand_backs == 1
            assert group.first_version < PolicyVersion(1, 6)


def check_its_trainer_goes(generator: GeneratorProcess, trainer: TrainerEnd) -> None:
    """It holds the tasks of LOST then."""
    trainer.publish(7)
    assert trainer.publisher.wait_acknowledged(7, 60.0)
    trainer.queue.dispatch(list(LOST.values()))
    generator.wait_until(lambda: len(trainer.queue.outstanding().claims) == len(LOST))
    trainer.close()
    generator.wait_until(lambda: not generator.is_ready())


def check_it_begins_again_what_is_lost(generator: GeneratorProcess, trainer: TrainerEnd) -> None:
    """`trainer`: a new one, which has only the first steps of the one before."""
    assert not generator.is_ready()
    trainer.publish(4)
    groups = taken(trainer, len(LOST))
    for group in groups:
        # What had ended before the trainer came back was on the queue already: dropping it is the
        # trainer's task.
        assert group.versions in ({PolicyVersion(1, 7)}, {PolicyVersion(2, 4)})
        if group.versions == {PolicyVersion(2, 4)}:
            for rollout in group.rollouts:
                assert gap(rollout, LOST[group.sequence], trainer) < TOLERANCE
    assert PolicyVersion(2, 4) in groups[-1].versions, (
        "nothing was at work when the trainer came back"
    )


def check_it_claims_nothing_without_a_trainer(
    generator: GeneratorProcess, trainer: TrainerEnd
) -> None:
    trainer.publisher.stop(2.0)
    generator.wait_until(lambda: not generator.is_ready())
    trainer.queue.dispatch([make_task(31, random_prompt(31), LengthBudget(200))])
    time.sleep(3.0)
    assert set(trainer.queue.outstanding().waiting) == {31}, (
        "its answer would be lost with the weights"
    )


def taken(trainer: TrainerEnd, count: int) -> list[RolloutGroup]:
    deliveries = trainer.read(count)
    trainer.queue.remove([delivery.stream_id for delivery in deliveries])
    return [delivery.group for delivery in deliveries]
