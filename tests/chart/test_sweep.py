"""A sweep on Kubernetes: its values files and its Job, rendered and validated, and its loop against
an API server that allows what the rendered Roles allow.
"""

from __future__ import annotations

import _thread
import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.cli.sweep.arms import PlannedSweep, plan_sweep
from rollcast.cli.sweep.run import run
from rollcast.cli.sweep.values import full_name, load_plan, plan_as_json, sweep_account, values
from rollcast.config.errors import UserError
from rollcast.local.sweep.choice import SweepChoice
from rollcast.local.sweep.cluster_api import ClusterApi
from rollcast.local.sweep.cluster_runs import ClusterRuns
from rollcast.local.sweep.ledger import SweepLedger
from rollcast.local.sweep.loop import SweepLoop
from rollcast.runfolder.sweep_records import SliceEnding
from tests.chart import custom_resources, sweep_cluster
from tests.chart.kubernetes_schemas import NEWEST, check
from tests.chart.rendering import CPU, Object, helm_errors, merged, of_kind, one, render
from tests.chart.sweep_cluster import SweepCluster, SweptRelease

RUN_FILE: Object = {
    "run": "small",
    "model": {"path": "Qwen/Qwen3-0.6B"},
    "tasks": {"dataset": {"kind": "arithmetic"}},
    "budget": {"steps": 10},
}
RATES = ("1e-05", "2e-05", "3e-05")
SWEEP: Object = {
    "sweep": "tiny",
    "base": "run.yaml",
    "grid": {"recipe.optimizer.learning_rate": [float(rate) for rate in RATES]},
    "target_device_hours": 0.002,
    "budget": {"runs": 1.6},
    "slice": 0.2,
    "min_slice_pauses": 0,
    "least_gain": 0,
}
CEILINGS = (0.3, 0.9, 0.5)
QUEUE: Object = {"trainer": {"labels": {"kueue.x-k8s.io/queue-name": "research"}}}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The folder that `rollcast sweep values` wrote."""
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN_FILE))
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    values(tmp_path / "sweep.yaml", tmp_path / "values")
    return tmp_path / "values"


def run_name(rate: str) -> str:
    return f"tiny-learning-rate-{rate}"


def rendered(written: Path, rate: str, change: Object | None = None) -> list[Object]:
    arm = yaml.safe_load((written / f"{run_name(rate)}.yaml").read_text())
    return render(merged(merged(CPU, change or {}), arm), name=f"r{RATES.index(rate)}")


@pytest.mark.parametrize("controller", ["job", "jobset"])
def test_a_paused_arm_has_no_pod_and_its_role_names_its_objects_alone(
    written: Path, controller: str
) -> None:
    objects = rendered(written, RATES[0], {"trainer": {"controller": controller}})
    swept = SweptRelease(objects, 0.5)
    assert swept.trainer["spec"]["suspend"] is True
    assert swept.replicas == 0
    assert swept.run == full_name(run_name(RATES[0]))
    role = one(objects, "Role", "-sweep")
    names = {
        (group, kind): rule.get("resourceNames")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
    }
    trainers = {"job": ("batch", "jobs"), "jobset": ("jobset.x-k8s.io", "jobsets")}
    assert names == {
        trainers[controller]: [swept.trainer["metadata"]["name"]],
        ("apps", "deployments/scale"): [swept.generator["metadata"]["name"]],
        ("", "configmaps"): [swept.settings["metadata"]["name"]],
    }
    assert one(objects, "RoleBinding", "-sweep")["subjects"][0]["name"] == "tiny-sweep"
    for item in objects:
        if item["kind"] not in ("JobSet",):
            check(item, NEWEST)
        elif custom_resources.known():
            assert not custom_resources.errors(item)


def test_the_job_is_what_kubernetes_takes_and_carries_the_plan(written: Path) -> None:
    objects = list(yaml.safe_load_all((written / "sweep-job.yaml").read_text()))
    for item in objects:
        check(item, NEWEST)
    (job,) = of_kind(objects, "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == one(objects, "ServiceAccount")["metadata"]["name"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    claims = {volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod["volumes"]}
    assert one(objects, "PersistentVolumeClaim")["metadata"]["name"] in claims
    plan = written / "plan.json"
    plan.write_text(one(objects, "ConfigMap")["data"]["plan.json"])
    loaded = load_plan(plan)
    assert plan_as_json(loaded) == plan_as_json(plan_sweep(written.parent / "sweep.yaml"))
    assert loaded.terms.budget == pytest.approx(1.6 * 0.002)


def test_an_autoscaler_would_undo_a_pause_and_is_refused(written: Path) -> None:
    with pytest.raises(helm_errors.HelmError, match=r"autoscaler\.mode keda would scale"):
        rendered(written, RATES[0], {"autoscaler": {"mode": "keda"}})


def test_long_names_are_those_of_the_chart() -> None:
    for name in ("a" * 41, "9lives", "b" * 32 + "-" + "c" * 10):
        objects = render(merged(CPU, {"fullnameOverride": name, "sweep": {"serviceAccount": "s"}}))
        assert one(objects, "ConfigMap", "-sweep")["metadata"]["name"] == f"{full_name(name)}-sweep"


class ClusterSweep:
    """The releases of `written`, and a loop over them."""

    def __init__(self, written: Path, change: Object | None = None) -> None:
        self.sweep: PlannedSweep = plan_sweep(written.parent / "sweep.yaml")
        releases = [
            SweptRelease(rendered(written, rate, change), ceiling)
            for rate, ceiling in zip(RATES, CEILINGS, strict=True)
        ]
        self.folder = written.parent
        self.cluster = SweepCluster(releases, sweep_account(self.sweep), self.folder)
        self.lines: list[str] = []

    def run(self) -> tuple[SweepChoice | None, SweepLedger]:
        names = {item.config.run: full_name(item.config.run) for item in self.sweep.planned}
        ledger = SweepLedger.open(self.folder)
        with ClusterApi(self.cluster.url, self.folder) as api:
            loop = SweepLoop(
                self.sweep.terms,
                self.sweep.planned,
                ClusterRuns(api, names, poll_seconds=0.02, patience_seconds=5.0),
                ledger,
                report=self.lines.append,
                on_choice=lambda choice: None,
            )
            return loop.run(), ledger


@pytest.mark.parametrize(
    "change", [{}, {"trainer": {"controller": "jobset"}}, QUEUE], ids=["job", "jobset", "kueue"]
)
def test_arms_take_turns_and_a_paused_one_holds_no_device(written: Path, change: Object) -> None:
    swept = ClusterSweep(written, change)
    if change is QUEUE:  # Kueue admits at once what is installed
        for release in swept.cluster.releases.values():
            release.is_active = True
    with swept.cluster as cluster:
        last, ledger = swept.run()
    assert cluster.refused == []
    assert last is not None
    assert last.best is not None
    assert last.best.arm == f"learning-rate-{RATES[1]}"
    if change is not QUEUE:
        assert cluster.most_training == 1
    assert not any(
        release.is_active or release.replicas for release in cluster.releases.values()
    ), "every arm is paused at the end"
    assert ledger.num_pauses >= 2
    assert ledger.pause_device_hours() >= 2 * 0.1 * 2 / 3600.0 / 2


def test_the_account_may_touch_nothing_else(written: Path) -> None:
    swept = ClusterSweep(written)
    with swept.cluster as cluster:
        for path in ("/apis/batch/v1/namespaces/ml/jobs/other", "/api/v1/namespaces/ml/secrets/s"):
            assert cluster.call("GET", path, None)[0] == 403


def test_a_failed_trainer_is_left_out_with_its_message(written: Path) -> None:
    swept = ClusterSweep(written)
    swept.cluster.releases[full_name(run_name(RATES[1]))].failure = "exit code 2"
    with swept.cluster:
        last, ledger = swept.run()
    assert last is not None
    assert last.best is not None
    assert last.best.arm == f"learning-rate-{RATES[2]}"
    assert ledger.failure(run_name(RATES[1])) == "exit code 2"


def test_an_api_server_that_is_away_for_a_while_ends_nothing(written: Path) -> None:
    swept = ClusterSweep(written)

    def set_away(*, is_away: bool) -> None:
        swept.cluster.is_away = is_away

    with swept.cluster:
        timers: Sequence[Any] = [
            threading.Timer(0.3, set_away, kwargs={"is_away": True}),
            threading.Timer(1.0, set_away, kwargs={"is_away": False}),
        ]
        for timer in timers:
            timer.start()
        last, _ = swept.run()
    assert last is not None
    assert last.best is not None


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A worker of the test runner ignores SIGINT, which `interrupt_main` would then not raise."""
    earlier_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier_handler)


def interrupt_when_one_trains(cluster: SweepCluster) -> None:
    while not any(release.seconds > 0.05 for release in cluster.releases.values()):
        time.sleep(0.01)
    _thread.interrupt_main()


@pytest.mark.usefixtures("interruptible")
def test_a_sweep_whose_pod_must_leave_pauses_its_run(written: Path) -> None:
    swept = ClusterSweep(written)
    with swept.cluster as cluster:
        threading.Thread(target=interrupt_when_one_trains, args=(cluster,)).start()
        last, ledger = swept.run()
        assert last is None
        assert [line.ending for line in ledger.lines if line.ending][-1] is SliceEnding.INTERRUPTED
        assert not any(release.is_active for release in cluster.releases.values())
        last, _ = swept.run()
    assert last is not None
    assert last.best is not None
    assert last.best.arm == f"learning-rate-{RATES[1]}"


def interrupt_when_one_ends(cluster: SweepCluster) -> None:
    while not any(
        release.seconds > 0.05 and not release.is_active for release in cluster.releases.values()
    ):
        time.sleep(0.01)
    _thread.interrupt_main()


@pytest.mark.usefixtures("interruptible")
def test_a_sweep_that_is_stopped_while_pods_end_counts_the_slice_and_lets_them_end(
    written: Path,
) -> None:
    swept = ClusterSweep(written)
    for release in swept.cluster.releases.values():
        release.drain_seconds = 1.0
    with swept.cluster as cluster:
        threading.Thread(target=interrupt_when_one_ends, args=(cluster,)).start()
        last, ledger = swept.run()
        assert last is None
        assert ledger.open_slice is None
        ends = [line for line in ledger.lines if line.event == "end"]
        assert [line.ending for line in ends] == [SliceEnding.INTERRUPTED]
        assert ledger.device_hours > 0
        last, _ = swept.run()
    assert last is not None
    assert cluster.most_training == 1


@pytest.mark.parametrize("change", [{}, QUEUE], ids=["pending", "kueue"])
def test_time_in_a_queue_is_no_compute_and_holds_no_generator(
    written: Path, change: Object
) -> None:
    swept = ClusterSweep(written, change)
    for release in swept.cluster.releases.values():
        release.waits_seconds = 1.0
    with swept.cluster as cluster:
        last, ledger = swept.run()
    assert last is not None
    assert last.best is not None
    assert not any(release.held_waiting for release in cluster.releases.values())
    ends = [line for line in ledger.lines if line.event == "end"]
    assert len(ends) >= 3
    devices = 2
    trained = sum(release.seconds for release in cluster.releases.values())
    stops = sum(line.stop_device_hours or 0.0 for line in ends)
    assert ledger.device_hours <= trained * devices / 3600.0 + stops + 1e-9
    waited = len(ends) * 1.0 * devices / 3600.0
    assert ledger.device_hours + waited > swept.sweep.terms.budget, "else it shows nothing"
    starts = [line.start_device_hours for line in ends if line.start_device_hours is not None]
    assert min(starts) < 1.0 * devices / 3600.0, "nor is it the cost of a start"


def test_without_accounts_of_the_run_the_time_of_its_ready_pods_counts(written: Path) -> None:
    swept = ClusterSweep(written)
    for release in swept.cluster.releases.values():
        release.reports = False
        release.waits_seconds = 0.5
    with swept.cluster as cluster:
        last, ledger = swept.run()
    assert last is not None
    trained = sum(release.seconds for release in cluster.releases.values())
    stops = sum(line.stop_device_hours or 0.0 for line in ledger.lines)
    assert ledger.device_hours - stops == pytest.approx(trained * 2 / 3600.0, rel=0.5)


def test_a_slice_of_a_killed_sweep_counts_what_the_run_itself_has_counted(written: Path) -> None:
    swept = ClusterSweep(written)
    item = swept.sweep.planned[0]
    with swept.cluster as cluster, ClusterApi(cluster.url, swept.folder) as api:
        runs = ClusterRuns(api, {item.config.run: full_name(item.config.run)})
        assert runs.lost_device_hours(item, 0.0, 0.0) == 0.0
        cluster.releases[full_name(item.config.run)].seconds = 3_600.0
        assert runs.lost_device_hours(item, 0.0, 0.5) == pytest.approx(1.5)


def test_a_step_of_an_earlier_slice_is_no_step_of_this_one(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the start would seem to take no time, and slices would be shorter than ten pauses."""
    monkeypatch.setattr(sweep_cluster, "EVALUATION_SECONDS", 60.0)
    swept = ClusterSweep(written)
    item = swept.sweep.planned[0]
    release = swept.cluster.releases[full_name(item.config.run)]
    release.seconds = 90.0
    release.is_forgotten = True
    looks: list[bool] = []

    def is_over(has_stepped: bool) -> bool:
        looks.append(has_stepped)
        if len(looks) == 10:
            release.seconds += 60.0
        return has_stepped

    with swept.cluster as cluster, ClusterApi(cluster.url, swept.folder) as api:
        names = {item.config.run: full_name(item.config.run)}
        ClusterRuns(api, names, poll_seconds=0.02).run_slice(item, is_over)
    assert looks[:10] == [False] * 10
    assert looks[-1]


def test_a_token_that_forecasters_refuse_ends_the_sweep_in_a_sentence(written: Path) -> None:
    swept = ClusterSweep(written)
    swept.cluster.token_refused = True
    with swept.cluster, pytest.raises(UserError, match=r"401.*ROLLCAST_HTTP_TOKEN"):
        swept.run()


def test_a_sweep_file_is_no_plan_of_a_job(written: Path) -> None:
    with pytest.raises(UserError, match="leave out --cluster"):
        load_plan(written.parent / "sweep.yaml")


def test_the_command_of_the_job_answers_from_ledger_and_forecasters(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod that is started again after the end has nothing left to do."""
    swept = ClusterSweep(written)
    (written / "plan.json").write_text(json.dumps(plan_as_json(swept.sweep)))
    before = signal.getsignal(signal.SIGTERM)
    with swept.cluster as cluster:
        assert swept.run()[0] is not None
        capsys.readouterr()
        monkeypatch.setattr("rollcast.cli.sweep.values.LEDGER_FOLDER", str(swept.folder))
        monkeypatch.setattr(ClusterApi, "connect", lambda: ClusterApi(cluster.url, swept.folder))
        try:
            with pytest.raises(SystemExit) as ended:
                run(written / "plan.json", cluster=True)
        finally:
            signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 0
    assert f"Use learning-rate-{RATES[1]}: it is the best" in capsys.readouterr().out
    assert json.loads((swept.folder / "sweep.json").read_text())["go_on"] is None
