"""A picture of the dashboard "Episodes", with made-up episodes: no run here has hundreds.

    python -m benchmarks.monitoring.episodes

A real Prometheus scrapes a metrics page for a minute, on which the episodes of two environments are
counted as the trainer counts them: docs/images/dashboard-episodes.png. Needs the Debian package
prometheus. Nothing is measured.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.monitoring.drawing import draw
from rollcast.local.ports import free_port
from rollcast.rollouts.records import Episode, EpisodeEnd, Turn
from rollcast.telemetry import episode_metrics, evaluation_metrics, generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.episode_statistics import count_episode
from testkit.forecaster.prometheus_server import configured_prometheus
from testkit.forecaster.recorded_run import TrainerPage
from testkit.monitoring.grafana import FILES, load
from testkit.monitoring.recording import NAMESPACE, SCRAPE_SECONDS, Recording

IMAGE = Path(__file__).parents[2] / "docs" / "images" / "dashboard-episodes.png"
RUN = "demo"
NUM_TICKS = 120
TICK_SECONDS = 0.5
TICKS_PER_EVALUATION = 10
MEAN_TURNS = {"search": 6.0, "shell": 3.0}
MEAN_CALL_SECONDS = {"search": 1.5, "shell": 0.7}
MEAN_TURN_SECONDS = 1.0
FIRST_PASS_RATES = {"search": 0.2, "shell": 0.35}
GAINED_PASS_RATE = 0.5
FIRST_MALFORMED_SHARE = 0.4
RESTARTED_SHARE = 0.02
END_SHARES = {
    EpisodeEnd.ANSWERED: 0.85,
    EpisodeEnd.TURNS: 0.1,
    EpisodeEnd.SECONDS: 0.04,
    EpisodeEnd.FAILED: 0.01,
}
SEQUENCE_SHARES = {"rewritten": 0.05, "new": 0.2, "retried": 0.02}
REFUSED_SHARES = {"context_length_exceeded": 0.1, "sampling_of_run": 0.01}
UNREAD_SHARE = 0.05
DISAGREED_SHARE = 0.01
MISTAKEN_SHARE = 0.1
NUM_SLOTS = 64
TARGET = 0.7


def make_episode(rng: random.Random, environment: str, progress: float) -> Episode:
    """`progress`: share of the run that is over; calls are malformed ever less often."""
    num_turns = max(1, round(rng.gauss(MEAN_TURNS[environment], 2.0)))
    malformed_share = FIRST_MALFORMED_SHARE * (1.0 - progress)
    turns = [
        Turn(0, place, place + 1, tool_calls=1, malformed_calls=int(rng.random() < malformed_share))
        for place in range(num_turns)
    ]
    return Episode(
        environment,
        turns=tuple(turns),
        end=rng.choices(list(END_SHARES), list(END_SHARES.values()))[0],
        environment_seconds=sum(rng.expovariate(1 / MEAN_CALL_SECONDS[environment]) for _ in turns),
        sampling_seconds=sum(rng.expovariate(1 / MEAN_TURN_SECONDS) for _ in turns),
        restarts=int(rng.random() < RESTARTED_SHARE),
    )


def tick(rng: random.Random, exporter: Exporter, number: int) -> None:
    """What trainer and generator count in half a second."""
    progress = number / NUM_TICKS
    for environment, first in FIRST_PASS_RATES.items():
        for _ in range(rng.randrange(3, 8)):
            count_episode(exporter, make_episode(rng, environment, progress))
        exporter.set(
            episode_metrics.EPISODES_IN_FLIGHT, rng.randrange(48, 56), environment=environment
        )
        exporter.set(episode_metrics.EPISODES_WAITING, rng.randrange(0, 6), environment=environment)
        exporter.add(
            episode_metrics.EPISODE_ANSWERS_CUT, rng.randrange(0, 2), environment=environment
        )
        exporter.add(
            episode_metrics.EPISODE_TOKENS_DISCARDED, rng.randrange(0, 40), environment=environment
        )
        for reason, share in SEQUENCE_SHARES.items():
            exporter.add(
                episode_metrics.ENDPOINT_EXTRA_SEQUENCES,
                int(rng.random() < share),
                environment=environment,
                reason=reason,
            )
        for code, share in REFUSED_SHARES.items():
            exporter.add(
                episode_metrics.ENDPOINT_REFUSED,
                int(rng.random() < share),
                environment=environment,
                code=code,
            )
        exporter.add(
            episode_metrics.ENDPOINT_UNREAD,
            int(rng.random() < UNREAD_SHARE),
            environment=environment,
        )
        exporter.add(
            episode_metrics.ENDPOINT_DISAGREEMENTS,
            int(rng.random() < DISAGREED_SHARE),
            environment=environment,
        )
        exporter.add(
            episode_metrics.ENDPOINT_MISTAKES,
            int(rng.random() < MISTAKEN_SHARE),
            environment=environment,
        )
        if number % TICKS_PER_EVALUATION == 0:
            labels = {
                "dataset": evaluation_metrics.ENVIRONMENT_PREFIX + environment,
                "incarnation": "1",
                "step": str(number),
            }
            exporter.set(evaluation_metrics.EVAL_COMPUTE, 1.0 + number, **labels)
            exporter.set(
                evaluation_metrics.EVAL_PASS_RATE, first + GAINED_PASS_RATE * progress, **labels
            )
    exporter.add(generator_metrics.EPISODE_KV_TOKENS, rng.randrange(9_000, 10_000), state="kept")
    exporter.add(generator_metrics.EPISODE_KV_TOKENS, rng.randrange(0, 1_500), state="rebuilt")
    exporter.set(generator_metrics.GENERATOR_SLOTS, NUM_SLOTS)
    exporter.set(generator_metrics.RUNNING_ROLLOUTS, rng.randrange(56, NUM_SLOTS + 1))


def main() -> None:
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder, TrainerPage(RUN) as page:
        port = free_port("127.0.0.1")
        targets = [{"targets": [f"127.0.0.1:{page.port}"], "labels": {"namespace": NAMESPACE}}]
        configuration = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s"},
            "scrape_configs": [{"job_name": "trainer", "static_configs": targets}],
        }
        with configured_prometheus(Path(folder), port, yaml.safe_dump(configuration)):
            began = time.time()
            for number in range(NUM_TICKS):
                tick(rng, page.exporter, number)
                time.sleep(TICK_SECONDS)
            address = f"http://127.0.0.1:{port}"
            recording = Recording(address, address, (RUN,), began, time.time())
            draw(load(FILES / "dashboards" / "episodes.json"), recording, TARGET, IMAGE)
    print(IMAGE)


if __name__ == "__main__":
    main()
