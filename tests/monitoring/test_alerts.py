"""Each alert fires when it should and stays silent when it should not:
promtool's own rule tests.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.forecaster.prometheus_server import PROMTOOL

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm" / "rollcast" / "files" / "rules.yaml"
NEEDS_PROMTOOL = pytest.mark.skipif(
    PROMTOOL is None, reason="needs promtool (Debian package prometheus)"
)
STEPS = 'rollcast_trainer_step{run="r",pod="t"}'
LEARNING = {STEPS: "1+1x240"}
"""A step a minute for four hours."""
WAITED = 'rollcast_trainer_wait_seconds_total{{run="r",for="{}"}}'
VERDICT = 'rollcast_forecast_verdict{{run="r",verdict="{}"}}'


@dataclass(frozen=True)
class Case:
    """Attributes: alert; what is the matter; samples a minute apart; the minute that is looked at;
    whether it fires.
    """

    alert: str
    matter: str
    series: dict[str, str]
    minute: int
    fires: bool


def fires(alert: str, matter: str, series: dict[str, str], minute: int = 60) -> Case:
    return Case(alert, matter, series, minute, True)


def silent(alert: str, matter: str, series: dict[str, str], minute: int = 60) -> Case:
    return Case(alert, matter, series, minute, False)


IDLE = 'rollcast_generator_idle_seconds_total{run="r",pod="g"}'
ROLLOUTS = 'rollcast_running_rollouts{run="r",pod="g"}'
RATIO = 'rollcast_longest_group_ratio{run="r"}'
PARKED = 'rollcast_generator_parked{run="r",pod="g"}'
WRONG = 'rollcast_wrong_numbers_timestamp_seconds{run="r"}'
SKIPPED = 'rollcast_updates_skipped_total{run="r"}'
SPIKES = 'rollcast_gradient_spikes_total{run="r"}'
GAP = 'rollcast_logprob_gap{run="r",statistic="mean"}'
EFFECTIVE = 'rollcast_effective_sample_share{run="r"}'
TRUNCATED = 'rollcast_truncation_ratio{run="r"}'
QUEUE, BOUND = 'rollcast_queue_bytes{run="r"}', 'rollcast_queue_max_bytes{run="r"}'
UNREADABLE = 'rollcast_unreadable_total{run="r"}'
DEFECTIVE = 'rollcast_groups_total{run="r",outcome="defective"}'
PAUSED = 'rollcast_weight_pause_seconds_sum{run="r",pod="g"}'
MISSED = 'rollcast_forecast_missed_readings{run="r"}'
SOURCE = 'rollcast_forecast_source_up{run="r"}'
MEASURED = 'rollcast_autoscaler_measured{run="r"}'
FAILED = 'rollcast_autoscaler_failures_total{run="r",call="scale"}'
EPISODES = 'rollcast_episodes_total{{run="r",environment="shell",end="{}"}}'
ANSWERED = {EPISODES.format("answered"): "0+60x120"}
RESTARTS = 'rollcast_episode_restarts_total{run="r",environment="shell"}'
IN_FLIGHT = {'rollcast_episodes_in_flight{run="r",pod="g",environment="shell"}': "100x120"}
WAITING = 'rollcast_episodes_waiting{run="r",pod="g",environment="shell"}'
SLOTS = {'rollcast_generator_slots{run="r",pod="g"}': "64x120"}
ENDED = {STEPS: "1+1x30 stale"}
"""A run that ended well after half an hour, its trainer gone."""

PLACEHOLDERS = {
    "@NAMESPACE@": "n",
    "@RUN@": "r",
    "@NO_STEP_MINUTES@": "30",
    "@RUNBOOK@": "docs/runbook.md",
}
CASES = (
    fires("RollcastNoOptimizerStep", "it stands still from minute 20 on", {STEPS: "1+1x20 21x60"}),
    silent(
        "RollcastNoOptimizerStep", "half an hour has not passed", {STEPS: "1+1x20 21x60"}, minute=45
    ),
    fires("RollcastNoOptimizerStep", "it never made its first step", {STEPS: "0x100"}),
    fires(
        "RollcastNoOptimizerStep",
        "it restarts every ten minutes and never gets on",
        {
            'rollcast_trainer_step{run="r",pod="a"}': "5x10 stale",
            'rollcast_trainer_step{run="r",pod="b"}': "_x12 5x10 stale",
            'rollcast_trainer_step{run="r",pod="c"}': "_x24 5x10 stale",
            'rollcast_trainer_step{run="r",pod="d"}': "_x36 5x60",
        },
        minute=50,
    ),
    silent(
        "RollcastNoOptimizerStep",
        "it makes a step every 20 minutes",
        {STEPS: "1x20 2x20 3x20 4x20"},
        minute=70,
    ),
    silent("RollcastNoOptimizerStep", "it starts up", {STEPS: "_x60 0x20"}, minute=75),
    silent("RollcastNoOptimizerStep", "it has ended", ENDED, minute=70),
    silent(
        "RollcastNoOptimizerStep",
        "the last evaluation takes long",
        {STEPS: "1+1x20 21x60", 'rollcast_budget_steps{run="r"}': "21x80"},
    ),
    fires(
        "RollcastTrainerAway",
        "it has died, generators wait",
        {STEPS: "1+1x10 stale", ROLLOUTS: "8x90"},
    ),
    silent(
        "RollcastTrainerAway",
        "it restarts within the half hour",
        {STEPS: "1+1x10 stale _x9 9x60", ROLLOUTS: "8x90"},
    ),
    silent("RollcastTrainerAway", "all have ended", ENDED | {ROLLOUTS: "8x31 stale"}, minute=80),
    silent("RollcastTrainerAway", "it works", LEARNING | {ROLLOUTS: "8x90"}),
    fires(
        "RollcastStalenessNearBound",
        "groups last nearly as long as they may",
        LEARNING | {RATIO: "0.9x60"},
    ),
    silent("RollcastStalenessNearBound", "they do not", LEARNING | {RATIO: "0.7x60"}),
    silent("RollcastStalenessNearBound", "one batch did", LEARNING | {RATIO: "0.5x50 1.2 0.5x20"}),
    fires(
        "RollcastTrainerStarved",
        "a fifth of its time goes",
        LEARNING | {WAITED.format("batch"): "0+12x60"},
    ),
    silent(
        "RollcastTrainerStarved", "it waits a little", LEARNING | {WAITED.format("batch"): "0+3x60"}
    ),
    silent(
        "RollcastTrainerStarved",
        "what it waits for is weights",
        LEARNING | {WAITED.format("weights"): "0+12x60"},
    ),
    silent(
        "RollcastTrainerStarved",
        "generators still start",
        {STEPS: "0x60", WAITED.format("batch"): "0+60x60"},
    ),
    silent(
        "RollcastTrainerStarved",
        "it has ended",
        ENDED | {WAITED.format("batch"): "0+12x30 stale"},
        minute=40,
    ),
    fires(
        "RollcastGeneratorsIdle",
        "they idle half of the time",
        LEARNING | {IDLE: "0+30x120"},
        minute=90,
    ),
    silent("RollcastGeneratorsIdle", "they idle a tenth", LEARNING | {IDLE: "0+6x120"}, minute=90),
    silent(
        "RollcastGeneratorsIdle",
        "the trainer stands still",
        {STEPS: "5x120", IDLE: "0+30x120"},
        minute=90,
    ),
    silent("RollcastGeneratorsIdle", "the run has ended", ENDED | {IDLE: "0+30x120"}, minute=90),
    fires("RollcastGeneratorParked", "one is parked", LEARNING | {PARKED: "0x20 1x60"}),
    silent("RollcastGeneratorParked", "none is", LEARNING | {PARKED: "0x60"}),
    silent("RollcastGeneratorParked", "it was replaced", LEARNING | {PARKED: "1x10 stale"}),
    # A trainer that ended at minute 30 and was started again; times are of the test's own clock.
    fires("RollcastWrongNumbers", "it came back", {WRONG: "_x32 1800x60", STEPS: "5x30 _ _ 3x60"}),
    silent("RollcastWrongNumbers", "an hour later", LEARNING | {WRONG: "_x32 1800x90"}, minute=95),
    silent("RollcastWrongNumbers", "it never did", LEARNING),
    fires("RollcastUpdatesSkipped", "one was", LEARNING | {SKIPPED: "0x50 1x10"}),
    silent("RollcastUpdatesSkipped", "long ago", LEARNING | {SKIPPED: "0x9 1x60"}),
    fires("RollcastGradientSpikes", "one came", LEARNING | {SPIKES: "0x50 1x10"}),
    silent("RollcastGradientSpikes", "none came", LEARNING | {SPIKES: "0x60"}),
    fires("RollcastLogprobGap", "they differ by a tenth of a nat", LEARNING | {GAP: "0.1x60"}),
    silent("RollcastLogprobGap", "they differ as rounding does", LEARNING | {GAP: "0.01x60"}),
    silent(
        "RollcastLogprobGap",
        "the largest of a batch is always large",
        LEARNING | {'rollcast_logprob_gap{run="r",statistic="max"}': "3x60"},
    ),
    fires(
        "RollcastFewEffectiveSamples",
        "a few tokens outweigh the batch",
        LEARNING | {EFFECTIVE: "0.3x60"},
    ),
    silent(
        "RollcastFewEffectiveSamples",
        "ratios differ as k steps make them",
        LEARNING | {EFFECTIVE: "0.97x60"},
    ),
    silent(
        "RollcastFewEffectiveSamples",
        "one batch had few",
        LEARNING | {EFFECTIVE: "0.97x50 0.1 0.97x20"},
    ),
    silent("RollcastFewEffectiveSamples", "the run has ended", ENDED | {EFFECTIVE: "0.3x90"}),
    fires("RollcastTruncation", "an eighth is cut off", LEARNING | {TRUNCATED: "0.125x60"}),
    silent("RollcastTruncation", "a twentieth is", LEARNING | {TRUNCATED: "0.05x60"}),
    silent(
        "RollcastTruncation",
        "one batch was",
        LEARNING | {TRUNCATED: "0.02x40 0.4 0.02x40"},
        minute=52,
    ),
    fires(
        "RollcastQueueBytes", "nine tenths are full", LEARNING | {QUEUE: "90x60", BOUND: "100x60"}
    ),
    silent("RollcastQueueBytes", "half is", LEARNING | {QUEUE: "50x60", BOUND: "100x60"}),
    silent(
        "RollcastQueueBytes",
        "it was full for a moment",
        LEARNING | {QUEUE: "50x57 95 95 50x10", BOUND: "100x90"},
    ),
    fires(
        "RollcastUnusableAnswers",
        "an entry was unreadable",
        LEARNING | {UNREADABLE: "0x50 1x10", DEFECTIVE: "0x60"},
    ),
    fires(
        "RollcastUnusableAnswers",
        "an answer was refused",
        LEARNING | {UNREADABLE: "0x60", DEFECTIVE: "0x50 1x10"},
    ),
    silent(
        "RollcastUnusableAnswers",
        "long ago",
        LEARNING | {UNREADABLE: "0x9 3x60", DEFECTIVE: "0x9 3x60"},
    ),
    fires(
        "RollcastWeightSyncSlow",
        "the trainer waits for it",
        LEARNING | {WAITED.format("weights"): "0+6x60"},
    ),
    fires("RollcastWeightSyncSlow", "generators stand paused", LEARNING | {PAUSED: "0+6x60"}),
    silent(
        "RollcastWeightSyncSlow",
        "both lose little",
        LEARNING
        | {WAITED.format("weights"): "0+1x60", PAUSED: "0+1x60", WAITED.format("batch"): "0+20x60"},
    ),
    fires(
        "RollcastEnvironmentFails",
        "a tenth of its episodes is given up",
        LEARNING | ANSWERED | {EPISODES.format("failed"): "0+6x120", RESTARTS: "0x120"},
    ),
    fires(
        "RollcastEnvironmentFails",
        "every tenth begins again, another environment is well",
        LEARNING
        | ANSWERED
        | {RESTARTS: "0+6x120", EPISODES.format("failed"): "0x120"}
        | {'rollcast_episodes_total{run="r",environment="calc",end="answered"}': "0+600x120"},
    ),
    fires(
        "RollcastEnvironmentFails",
        "every episode is given up, so that no step is ever made",
        {STEPS: "0x120", EPISODES.format("failed"): "0+60x120", RESTARTS: "0+120x120"},
    ),
    silent(
        "RollcastEnvironmentFails",
        "one in sixty does",
        LEARNING | ANSWERED | {EPISODES.format("failed"): "0+1x120", RESTARTS: "0x120"},
    ),
    silent(
        "RollcastEnvironmentFails",
        "the run has ended",
        ENDED | {EPISODES.format("failed"): "0+6x30 stale", RESTARTS: "0x30 stale"},
    ),
    fires(
        "RollcastEnvironmentsStarveEngines",
        "half wait and few slots sample",
        LEARNING | IN_FLIGHT | SLOTS | {WAITING: "50x120", ROLLOUTS: "10x120"},
    ),
    silent(
        "RollcastEnvironmentsStarveEngines",
        "as many wait, and the slots are full",
        LEARNING | IN_FLIGHT | SLOTS | {WAITING: "50x120", ROLLOUTS: "60x120"},
    ),
    silent(
        "RollcastEnvironmentsStarveEngines",
        "slots are free because tools take long",
        LEARNING | IN_FLIGHT | SLOTS | {WAITING: "2x120", ROLLOUTS: "10x120"},
    ),
    fires(
        "RollcastSaturated",
        "the verdict has held",
        LEARNING | {VERDICT.format("saturated"): "0x20 1x60"},
    ),
    silent(
        "RollcastSaturated",
        "it has just come",
        LEARNING | {VERDICT.format("saturated"): "0x40 1x60"},
    ),
    silent(
        "RollcastSaturated", "another holds", LEARNING | {VERDICT.format("forecastable"): "1x60"}
    ),
    silent(
        "RollcastSaturated",
        "the run has ended",
        ENDED | {VERDICT.format("saturated"): "1x120"},
        minute=90,
    ),
    fires(
        "RollcastForecastDrifted",
        "three readings in a row lie outside",
        LEARNING | {MISSED: "0x30 1x10 2x10 3x30"},
    ),
    silent(
        "RollcastForecastDrifted",
        "two did, and then one inside",
        LEARNING | {MISSED: "0x30 1x10 2x10 0x30"},
    ),
    silent("RollcastForecastDrifted", "the run has ended", ENDED | {MISSED: "5x90"}),
    fires(
        "RollcastCurveBroken",
        "the curve collapsed",
        LEARNING | {VERDICT.format("not_sigmoid"): "0x30 1x60"},
    ),
    silent(
        "RollcastCurveBroken",
        "it is too early to say",
        LEARNING | {VERDICT.format("too_early"): "1x60"},
    ),
    silent(
        "RollcastCurveBroken", "the run has ended", ENDED | {VERDICT.format("not_sigmoid"): "1x90"}
    ),
    fires(
        "RollcastForecasterBlind", "its source does not answer", LEARNING | {SOURCE: "1x30 0x60"}
    ),
    silent("RollcastForecasterBlind", "it answers again", LEARNING | {SOURCE: "1x30 0x10 1x60"}),
    silent(
        "RollcastForecasterBlind", "there is nothing left to read", ENDED | {SOURCE: "1x31 0x60"}
    ),
    fires("RollcastAutoscalerBlind", "nothing can be measured", LEARNING | {MEASURED: "1x10 0x90"}),
    fires(
        "RollcastAutoscalerBlind",
        "Kubernetes refuses",
        LEARNING | {MEASURED: "1x90", FAILED: "0+4x90"},
    ),
    silent(
        "RollcastAutoscalerBlind",
        "it measures and acts",
        LEARNING | {MEASURED: "1x90", FAILED: "2x90"},
    ),
    silent("RollcastAutoscalerBlind", "the run has not begun", {STEPS: "0x90", MEASURED: "0x90"}),
)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Alert -> its rule of run "r" as the chart renders it, in a file of its own, without the
    sentences for people.
    """
    text = RULES.read_text()
    for placeholder, value in PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    (group,) = yaml.safe_load(text)["groups"]
    folder = tmp_path_factory.mktemp("rules")
    for rule in group["rules"]:
        del rule["annotations"]
        (folder / f"{rule['alert']}.yaml").write_text(
            yaml.safe_dump({"groups": [{**group, "rules": [rule]}]})
        )
    return {path.stem: path for path in folder.iterdir()}


def rule_test(cases: Collection[Case], rules: dict[str, Path]) -> dict[str, Any]:
    """What promtool is to look at for cases of one alert.

    A run in whose place other runs have the same series, here and in another namespace, is to be
    silent.
    """
    (alert,) = {case.alert for case in cases}
    (rule,) = yaml.safe_load(rules[alert].read_text())["groups"][0]["rules"]
    labels = {"namespace": "n", "run": "r", "severity": rule["labels"]["severity"]}
    tests = []
    for case in cases:
        own = {
            name.replace("{", '{namespace="n",', 1): samples
            for name, samples in case.series.items()
        }
        others = {
            name.replace('run="r"', 'run="another"'): samples for name, samples in own.items()
        }
        elsewhere = {name.replace('"n"', '"m"', 1): samples for name, samples in own.items()}
        asked: list[tuple[dict[str, str], list[Any]]] = [(own, [])]
        if case.fires:
            asked = [(own, [{"exp_labels": labels}]), (others | elsewhere, [])]
        tests += [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": f"{case.minute}m", "alertname": alert, "exp_alerts": alerts}
                ],
            }
            for series, alerts in asked
        ]
    return {"rule_files": [str(rules[alert])], "evaluation_interval": "1m", "tests": tests}


@pytest.fixture(scope="module")
def all_pass(rules: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Whether promtool, started once, finds every case as it should be."""
    by_alert = [[case for case in CASES if case.alert == alert] for alert in rules]
    tests = [rule_test(cases, rules) for cases in by_alert if cases]
    return _promtool(tmp_path_factory.mktemp("together"), *tests).returncode == 0


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    "case",
    CASES,
    ids=lambda case: f"{case.alert}-{'fires' if case.fires else 'silent'}-{case.matter}",
)
def test_the_alert(case: Case, rules: dict[str, Path], all_pass: bool, tmp_path: Path) -> None:
    """By itself only if any fails: then it says which."""
    if not all_pass:
        _promtool_passes(rule_test([case], rules), tmp_path)


@NEEDS_PROMTOOL
@pytest.mark.parametrize("namespace", ["", "n"], ids=["on-one-machine", "on-a-cluster"])
@pytest.mark.parametrize(
    ("alert", "series", "sentence"),
    [
        (
            "RollcastLogprobGap",
            LEARNING | {GAP: "0.07808x60"},
            "trainer and generators differ by 0.0781 nats a token",
        ),
        (
            "RollcastUnusableAnswers",
            LEARNING | {UNREADABLE: "0x50 2x10"},
            "2 entries or answers came in a quarter of an hour that could not be used",
        ),
        (
            "RollcastGeneratorParked",
            LEARNING | {PARKED: "1x90"},
            "1 generators have ended their engines for want of memory and hold devices for nothing",
        ),
        (
            "RollcastTruncation",
            LEARNING | {TRUNCATED: "0.125x60"},
            "12.5% of the rollouts are cut off by the token budget",
        ),
    ],
)
def test_the_sentence_has_plain_numbers_and_a_namespace_if_there_is_one(
    alert: str, series: dict[str, str], sentence: str, namespace: str, tmp_path: Path
) -> None:
    text = RULES.read_text()
    for placeholder, value in (PLACEHOLDERS | {"@NAMESPACE@": namespace}).items():
        text = text.replace(placeholder, value)
    (group,) = yaml.safe_load(text)["groups"]
    (rule,) = (each for each in group["rules"] if each["alert"] == alert)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{**group, "rules": [rule]}]}))
    label = f'{{namespace="{namespace}",' if namespace else "{"
    labels = {"run": "r", "severity": rule["labels"]["severity"]} | (
        {"namespace": namespace} if namespace else {}
    )
    annotations = {
        "summary": f"Run {f'{namespace}/' if namespace else ''}r: {sentence}",
        "runbook_url": f"docs/runbook.md#{alert.lower()}",
    }
    expected = [{"exp_labels": labels, "exp_annotations": annotations}]
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name.replace("{", label, 1), "values": values}
                    for name, values in series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": "60m", "alertname": alert, "exp_alerts": expected}
                ],
            }
        ],
    }
    _promtool_passes(test, tmp_path)


@NEEDS_PROMTOOL
@pytest.mark.parametrize("exported", ["", "exported_"], ids=["labels-honoured", "labels-set-aside"])
def test_gpus_are_those_of_the_runs_namespace(exported: str, tmp_path: Path) -> None:
    """The one kind of query that no local run can answer, on what dcgm-exporter says of pods in two
    namespaces.
    """
    (query,) = {target["expr"] for target in _panel("fleet", "GPU use")["targets"]}
    own = {"": "", "exported_": 'namespace="gpu-operator",pod="dcgm",'}[exported]
    gpu = f'DCGM_FI_DEV_GPU_UTIL{{{own}gpu="%s",{exported}namespace="%s",{exported}pod="%s"}}'
    step = 'rollcast_trainer_step{{run="{}",namespace="{}"}}'
    series = {
        gpu % ("0", "mine", "g-0"): "90x5",
        gpu % ("1", "mine", "g-0"): "70x5",
        gpu % ("0", "theirs", "g-9"): "50x5",
        step.format("r", "mine"): "0x5",
        step.format("s", "theirs"): "4x5",
    }
    samples = [
        {"labels": f'{{namespace="mine", pod="g-0", gpu="{gpu_id}"}}', "value": value}
        for gpu_id, value in (("0", 90), ("1", 70))
    ]
    test = {
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": query.replace("$namespace", "mine").replace("$run", "r"),
                        "eval_time": "3m",
                        "exp_samples": samples,
                    }
                ],
            }
        ]
    }
    _promtool_passes(test, tmp_path)


def _panel(board: str, title: str) -> dict[str, Any]:
    (found,) = (
        panel
        for panel in json.loads((RULES.parent / "dashboards" / f"{board}.json").read_text())[
            "panels"
        ]
        if panel["title"] == title
    )
    return dict(found)


def _promtool(folder: Path, *tests: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    files = [folder / f"{number}.yaml" for number in range(len(tests))]
    for file, test in zip(files, tests, strict=True):
        file.write_text(json.dumps(test))
    assert PROMTOOL is not None
    return subprocess.run(
        [PROMTOOL, "test", "rules", *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _promtool_passes(test: dict[str, Any], folder: Path) -> None:
    checked = _promtool(folder, test)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@NEEDS_PROMTOOL
def test_the_rules_are_valid_with_their_sentences(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES.read_text().replace("@NO_STEP_MINUTES@", "30"))
    assert PROMTOOL is not None
    checked = subprocess.run(
        [PROMTOOL, "check", "rules", "--lint-fatal", str(tmp_path / "rules.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_is_tested_both_ways_and_has_a_runbook_entry() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    tested = {(case.alert, case.fires) for case in CASES}
    assert tested == {(rule["alert"], fires) for rule in rules for fires in (True, False)}
    entries = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert entries == [rule["alert"] for rule in rules]
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"@RUNBOOK@#{rule['alert'].lower()}"
