"""Are long episodes trained on as often as short ones? A simulation of the pipeline around the real
schedule.

    python -m lab.length_bias.episodes [--steps 200]

Two generators of 8 slots with up to 104 episodes in flight each, groups of 8, k = 8. Episodes have
1 to 32 turns (geometric, 6 in the mean) of some 100 tokens (lognormal) with tool calls of 1 to 60 s
(log-uniform) between them. Groups dispatched before the last k + 2 steps are put into deciles by
the seconds of their longest episode, waits for a slot not counted: each decile's used groups, its
delay from claim to use, and the share that ended more than 4 steps after its claim, on which a
system that drops late groups would not train. Writes lab/results/length_bias_episodes.json; exit
status 1 if a group was not used or a token was too old.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from statistics import median
from typing import Any

from rollcast.recipe.schedule import PipelineRL
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import SimulatedTrainer
from rollcast.simulation.workload import Task, Workload, constant
from testkit.record import LAB_RESULTS, write_result
from testkit.simulation.episodes import EpisodePipeline, Settled, SimulatedTurn

MAX_STALENESS_STEPS = 8
GROUPS_PER_STEP = 8
ROLLOUTS_PER_GROUP = 8
NUM_GENERATORS = 2
SLOTS = 8
MAX_EPISODES = 104
"""Most episodes in flight on one generator."""
SECONDS_PER_TOKEN = 0.005
UPDATE_SECONDS = 80.0
MEAN_TURNS = 6.0
MAX_TURNS = 32
MEDIAN_TURN_TOKENS = 80.0
TURN_TOKENS_SPREAD = 0.7
"""Standard deviation of the logarithm of a turn's tokens."""
CALL_SECONDS = (1.0, 60.0)
MAX_STEPS_TO_END = 4
"""A system that drops what ends later is compared. Half of k."""
SEED = 7


def turns_of(task: Task, index: int) -> list[SimulatedTurn]:
    """The turns of one episode, drawn from the task's number and the rollout's index alone."""
    rng = random.Random(f"{SEED} {task.number} {index}")
    num_turns = 1
    while num_turns < MAX_TURNS and rng.random() > 1 / MEAN_TURNS:
        num_turns += 1
    shortest, longest = (math.log(seconds) for seconds in CALL_SECONDS)
    return [
        SimulatedTurn(
            tokens=max(1.0, rng.lognormvariate(math.log(MEDIAN_TURN_TOKENS), TURN_TOKENS_SPREAD)),
            call_seconds=math.exp(rng.uniform(shortest, longest)),
        )
        for _ in range(num_turns)
    ]


def longest_seconds(task: Task) -> float:
    """Seconds of the longest episode of the group, without waits for a slot."""

    def seconds(turns: list[SimulatedTurn]) -> float:
        sampling = sum(turn.tokens for turn in turns) * SECONDS_PER_TOKEN
        return sampling + sum(turn.call_seconds for turn in turns[:-1])

    return max(seconds(turns_of(task, index)) for index in range(ROLLOUTS_PER_GROUP))


def simulate(steps: int) -> EpisodePipeline:
    pipeline = EpisodePipeline(
        turns=turns_of,
        max_episodes=MAX_EPISODES,
        schedule=PipelineRL(max_staleness=MAX_STALENESS_STEPS, groups_per_step=GROUPS_PER_STEP),
        workload=Workload(lengths=constant(1.0), rollouts_per_group=ROLLOUTS_PER_GROUP, seed=SEED),
        engines=[EngineSpeed(slots=SLOTS, seconds_per_token=SECONDS_PER_TOKEN)] * NUM_GENERATORS,
        trainer=SimulatedTrainer(step=UPDATE_SECONDS, spread=0.1, per_token=1e-9),
        fresh=True,
        seed=SEED,
    )
    pipeline.run(steps=steps)
    return pipeline


def deciles(settled: list[Settled], num_groups: int) -> list[dict[str, Any]]:
    """One row for each tenth of the first `num_groups` tasks, by the seconds of their longest
    episode.
    """
    by_task = {item.attempt.task.number: item for item in settled}
    workload = Workload(lengths=constant(1.0), rollouts_per_group=ROLLOUTS_PER_GROUP, seed=SEED)
    seconds = {number: longest_seconds(workload.task(number)) for number in range(num_groups)}
    ordered = sorted(seconds, key=lambda number: seconds[number])
    rows = []
    for decile in range(10):
        tasks = ordered[num_groups * decile // 10 : num_groups * (decile + 1) // 10]
        used = [by_task[number] for number in tasks if number in by_task]
        late = sum(item.steps_to_end > MAX_STEPS_TO_END for item in used)
        rows.append(
            {
                "decile": decile,
                "longest_seconds": [round(seconds[tasks[0]]), round(seconds[tasks[-1]])],
                "dispatched": len(tasks),
                "used": len(used),
                "seconds_to_use_median": round(median(item.seconds for item in used)),
                "ended_late_share": round(late / len(tasks), 3),
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    pipeline = simulate(arguments.steps)
    num_groups = (arguments.steps - MAX_STALENESS_STEPS - 2) * GROUPS_PER_STEP
    rows = deciles(pipeline.settled, num_groups)
    oldest = max(item.staleness for item in pipeline.settled)
    figures = {"k": MAX_STALENESS_STEPS, "oldest_group": oldest, "deciles": rows}
    print(json.dumps(figures, indent=1))
    print(write_result("length_bias_episodes", figures, LAB_RESULTS))
    is_unbiased = all(row["used"] == row["dispatched"] for row in rows)
    return 0 if is_unbiased and oldest <= MAX_STALENESS_STEPS else 1


if __name__ == "__main__":
    sys.exit(main())
