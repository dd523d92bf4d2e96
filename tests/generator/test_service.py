"""The generator as a process, with real Redis and a real publisher: from waiting for weights to a drain."""

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
from rollcast.local.ports import free_port
from rollcast.rollouts.records import LengthBudget, PromptTask, Rollout
from rollcast.wire.version import PolicyVersion
from testkit.generator.trainer_end import GeneratorProcess, TrainerEnd
from testkit.replay import replay_logprobs
from testkit.rollouts.servers import Server, find_server
from testkit.tiny_model import make_tiny_model
from tests.generator.conftest import make_task, random_prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

TOLERANCE = 1e-4


@pytest.fixture
def config(tmp_path: Path) -> Iterator[RunConfig]:
    server = Server(find_server("6.2"), tmp_path)
    server.start()
    make_tiny_model(tmp_path / "model", max_length=2048)
    yield parse_run_config(
        {
            "run": "service",
            "folder": str(tmp_path / "runs"),
            "model": {"path": str(tmp_path / "model"), "dtype": "float32", "max_length": 2048},
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
    replayed = replay_logprobs(rollout, task.prompt_token_ids.tolist(), trainer.weights, trainer.model)
    return float(abs(replayed - rollout.logprobs).max())


def test_from_waiting_for_weights_to_a_drain_that_another_generator_continues(
    config: RunConfig, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    path = tmp_path / "resolved.json"
    write_resolved(config, path)
    model = AutoModelForCausalLM.from_pretrained(config.model.path).eval()
    trainer = TrainerEnd(config, model)
    first, second = GeneratorProcess(config, path, "a"), None
    try:
        short = {sequence: make_task(sequence, random_prompt(sequence), LengthBudget(200)) for sequence in (1, 2, 3)}
        trainer.queue.dispatch(list(short.values()))
        first.wait_for_port()
        time.sleep(1.0)
        assert first.get("/healthz").status_code == 200
        assert first.get("/readyz").status_code == 503
        assert len(trainer.queue.outstanding().waiting) == 3, "it must not answer with weights of its own"

        trainer.publish(1)
        for step in range(2, 6):
            assert trainer.publisher.wait_acknowledged(step - 1, 60.0)
            trainer.publish(step)
            time.sleep(0.1)
        first.wait_until(first.is_ready)
        for delivery in trainer.read(3):
            group = delivery.group
            assert group.generator.startswith("a-")
            for rollout in group.rollouts:
                assert gap(rollout, short[group.sequence], trainer) < TOLERANCE
            trainer.queue.remove([delivery.stream_id])

        long = {
            sequence: make_task(sequence, random_prompt(sequence), LengthBudget(1500, seed=1))
            for sequence in (11, 12, 13, 14)
        }
        for task in long.values():
            task.prompt_token_ids[0] = 40
        trainer.queue.dispatch(list(long.values()))
        first.wait_until(lambda: len(trainer.queue.outstanding().claims) == 4)
        time.sleep(0.3)
        trainer.publish(6)
        assert trainer.publisher.wait_acknowledged(6, 60.0)
        first.wait_until(lambda: trainer.publisher.members()[0].decode_tokens_per_second > 1.0)
        metrics = first.get("/metrics").text
        assert re.search(r'rollcast_policy_step{generator="a-\w+",run="service"} 6.0', metrics)
        assert 'rollcast_weight_pause_seconds_count{run="service"}' in metrics
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(60) == 0, first.log.read_text()[-3000:]
        outstanding = trainer.queue.outstanding()
        assert not outstanding.claims
        assert {item.attempt for item in outstanding.waiting.values()} <= {0}

        assert any(item.first_version for item in outstanding.waiting.values()), "nothing was handed back with tokens"
        second = GeneratorProcess(config, path, "b")
        groups = [delivery.group for delivery in trainer.read(4)]
        assert any(group.hand_backs for group in groups)
        for group in groups:
            for rollout in group.rollouts:
                assert not rollout.partial
                assert gap(rollout, long[group.sequence], trainer) < TOLERANCE
            if group.generator.startswith("b-"):
                assert group.hand_backs == 1
                assert group.first_version < PolicyVersion(1, 6)
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(60) == 0
        assert "Traceback" not in first.log.read_text() + second.log.read_text()
    finally:
        first.end()
        if second is not None:
            second.end()
        trainer.close()


def test_a_new_trainer_and_then_a_violent_death(config: RunConfig, tmp_path: Path) -> None:
    """While there is none nothing is claimed; rollouts with tokens of lost steps are begun again; kill -9 leaves no
    engine process behind."""
    from transformers import AutoModelForCausalLM

    path = tmp_path / "resolved.json"
    write_resolved(config, path)
    model = AutoModelForCausalLM.from_pretrained(config.model.path).eval()
    trainer = TrainerEnd(config, model)
    generator = GeneratorProcess(config, path, "c")
    try:
        generator.wait_for_port()
        trainer.publish(7)
        generator.wait_until(generator.is_ready)
        tasks = {sequence: make_task(sequence, random_prompt(sequence), LengthBudget(1500)) for sequence in (1, 2)}
        trainer.queue.dispatch(list(tasks.values()))
        generator.wait_until(lambda: len(trainer.queue.outstanding().claims) == 2)
        trainer.publisher.stop(2.0)
        generator.wait_until(lambda: not generator.is_ready())
        tasks[3] = make_task(3, random_prompt(3), LengthBudget(1500))
        trainer.queue.dispatch([tasks[3]])
        time.sleep(3.0)
        assert set(trainer.queue.outstanding().waiting) == {3}, "its answer would be lost with the weights"
        trainer.queue.close()

        trainer = TrainerEnd(config, model, incarnation=2, history=[(1, 3)])
        time.sleep(2.0)
        assert not generator.is_ready()
        trainer.publish(4)
        groups = [delivery.group for delivery in trainer.read(3)]
        for group in groups:
            # What had ended before the trainer came back was on the queue already: dropping it is the trainer's task.
            assert group.versions in ({PolicyVersion(1, 7)}, {PolicyVersion(2, 4)})
            if group.versions == {PolicyVersion(2, 4)}:
                for rollout in group.rollouts:
                    assert gap(rollout, tasks[group.sequence], trainer) < TOLERANCE
        assert PolicyVersion(2, 4) in groups[-1].versions

        engines = psutil.Process(generator.process.pid).children(recursive=True)
        assert engines
        generator.process.kill()
        _, alive = psutil.wait_procs(engines, timeout=60)
        assert not alive
    finally:
        generator.end()
        trainer.close()
