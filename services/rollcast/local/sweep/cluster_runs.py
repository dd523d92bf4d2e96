"""The runs of a sweep on Kubernetes: each is a release. A paused one holds no device, because its
trainer is suspended and its generators are gone.

resume: trainer suspend false (with Kueue the Workload active, and the trainer waits for admission);
        once the trainer is not suspended, generators to their number
pause:  generators to 0, trainer suspend true (Workload inactive), until no pod of either is left

Time counts while devices are held: by the run's own accounts, which its forecaster reports, and
while these do not rise by the time in which the trainer's pods are ready.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from rollcast.config.errors import PassingError, UserError
from rollcast.curves.axis import make_curve, without_start_up
from rollcast.curves.columns.times import SECONDS_PER_HOUR
from rollcast.curves.evaluations import CurvePoint, RunHistory
from rollcast.local.ablation import PlannedRun
from rollcast.local.sweep.cluster_api import ClusterApi
from rollcast.local.sweep.ledger import SliceOutcome
from rollcast.local.sweep.loop import IsOver
from rollcast.runfolder.sweep_records import SliceEnding
from rollcast.scaling.law.curve import Curve

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/{}/workloads"
POINT_FIELDS = (
    "incarnation", "step", "pass_rate", "compute", "standard_error", "trained_tokens", "samples",
    "at", "truncation_ratio", "start_up",
)  # fmt: skip
"""Fields of a forecaster's point that a curve's point has under the same name."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Release:
    """The chart's ConfigMap of a run: paths in the API, and numbers."""

    trainer: str
    generator: str
    """Path of the Deployment's scale."""
    forecaster: str
    """URL."""
    generators: int
    devices: int
    queued: bool
    """Whether Kueue admits the trainer."""


class ClusterRuns:
    def __init__(
        self,
        api: ClusterApi,
        release_names: Mapping[str, str],
        *,
        poll_seconds: float = 5.0,
        patience_seconds: float = 600.0,
    ) -> None:
        """`release_names`: run -> full name of its release's objects. `patience_seconds`: how long
        an API server that is away, and pods that end, are waited for.
        """
        self._api = api
        self._names = release_names
        self._poll_seconds = poll_seconds
        self._patience_seconds = patience_seconds
        self._curves: dict[str, Curve] = {}
        self._accounts: dict[str, float] = {}
        """Device-hours that each run has spent, by its own last account."""
        self._unaccounted_seconds = 0.0
        """Time with ready pods since the account of the run that trains last rose."""

    def devices(self, item: PlannedRun) -> int:
        return self._release(item.config.run).devices

    def curve(self, item: PlannedRun) -> Curve | None:
        """The forecaster's curve, or the last one known while that does not answer."""
        run = item.config.run
        answer = self._ask(run, "points")
        if answer is not None:
            history = RunHistory(run, [_point(run, point) for point in answer["points"]])
            with suppress(ValueError):  # before the first evaluation after the first step
                self._curves[run] = make_curve(history, without_start_up)[1]
        return self._curves.get(run)

    def device_hours(self, item: PlannedRun, seconds: float, earlier: float) -> float:
        run = item.config.run
        account = (self._ask(run, "status") or {}).get("spent_device_hours")
        if account is not None and account > self._accounts.get(run, earlier):
            self._accounts[run] = account
            self._unaccounted_seconds = 0.0
        accounted = max(0.0, self._accounts.get(run, earlier) - earlier)
        return accounted + self._unaccounted_seconds * self.devices(item) / SECONDS_PER_HOUR

    def lost_device_hours(self, item: PlannedRun, began_at: float, earlier: float) -> float:
        return self.device_hours(item, 0.0, earlier)

    def run_slice(self, item: PlannedRun, is_over: IsOver) -> SliceOutcome:
        run = item.config.run
        release = self._release(run)
        self._pause_others(run)
        first_step = self._step(run)
        has_stepped = False
        self._unaccounted_seconds = 0.0
        replicas = 0
        looked_at = time.monotonic()
        error = None
        try:
            self._set_suspended(release, suspended=False)
            while not is_over(has_stepped):
                step = self._step(run)
                # A forecaster that has restarted knows the step only when the trainer is back.
                first_step = step if first_step is None else first_step
                if step is not None and first_step is not None:
                    has_stepped = has_stepped or step > first_step
                trainer = self._trainer(release)
                if error := _failure(trainer):
                    break
                is_suspended = trainer["spec"].get("suspend", False)
                if is_suspended and not release.queued:  # by an upgrade of the release
                    self._set_suspended(release, suspended=False)
                # While it waits for its queue, generators would only hold devices
                wanted_replicas = 0 if is_suspended else release.generators
                if wanted_replicas != replicas:
                    self._scale(release, wanted_replicas)
                    replicas = wanted_replicas
                now_seconds = time.monotonic()
                if _num_pods(trainer, "ready"):
                    self._unaccounted_seconds += now_seconds - looked_at
                looked_at = now_seconds
                time.sleep(self._poll_seconds)
            asked = time.monotonic()
            self._pause(release)
        except KeyboardInterrupt:  # the sweep's own pod has to leave, maybe while it waits for pods
            self._ask_to_pause(release)
            return SliceOutcome(SliceEnding.INTERRUPTED)
        if error is not None:
            return SliceOutcome(SliceEnding.FAILED, error=error)
        return SliceOutcome(SliceEnding.PAUSED, time.monotonic() - asked)

    def _pause_others(self, run: str) -> None:
        """Such as those that Kueue admitted when they were installed, or one whose pods still end
        after the sweep itself was stopped.
        """
        for other in self._names.keys() - {run}:
            release = self._release(other)
            if not self._is_suspended(release) or self._num_pods(release):
                self._pause(release)

    def _ask_to_pause(self, release: Release) -> None:
        self._scale(release, 0)
        self._set_suspended(release, suspended=True)

    def _pause(self, release: Release) -> None:
        """Returns once no pod is left.

        Raises PassingError if some are left after the longest wait.
        """
        self._ask_to_pause(release)
        deadline = time.monotonic() + self._patience_seconds
        while self._num_pods(release):
            if time.monotonic() > deadline:
                raise PassingError(
                    f"{release.trainer}: its pods are still there {self._patience_seconds:.0f} s "
                    "after it was suspended; look at their node, then let the sweep go on"
                )
            time.sleep(min(1.0, self._poll_seconds))

    def _set_suspended(self, release: Release, *, suspended: bool) -> None:
        if not release.queued:
            change = {"spec": {"suspend": suspended}}
            self._patiently(lambda: self._api.patch(release.trainer, change))
            return
        workloads = WORKLOADS.format(self._api.namespace)
        name = self._workload(release)["metadata"]["name"]
        change = {"spec": {"active": not suspended}}
        self._patiently(lambda: self._api.patch(f"{workloads}/{name}", change))

    def _is_suspended(self, release: Release) -> bool:
        if release.queued:
            return not self._workload(release)["spec"].get("active", True)
        return bool(self._trainer(release)["spec"].get("suspend", False))

    def _workload(self, release: Release) -> dict[str, Any]:
        """Kueue's Workload of the trainer. Raises UserError without one."""
        uid = self._trainer(release)["metadata"]["uid"]
        selector = f"?labelSelector=kueue.x-k8s.io/job-uid={uid}"
        path = WORKLOADS.format(self._api.namespace) + selector
        items: list[dict[str, Any]] = self._patiently(lambda: self._api.get(path))["items"]
        if not items:
            raise UserError(
                f"{release.trainer}: Kueue has no Workload for it; look at the queue that its "
                "label names"
            )
        return items[0]

    def _scale(self, release: Release, replicas: int) -> None:
        change = {"spec": {"replicas": replicas}}
        self._patiently(lambda: self._api.patch(release.generator, change))

    def _num_pods(self, release: Release) -> int:
        trainers = _num_pods(self._trainer(release), "active", "terminating")
        scale = self._patiently(lambda: self._api.get(release.generator))
        return trainers + int(scale.get("status", {}).get("replicas") or 0)

    def _step(self, run: str) -> float | None:
        """The trainer's last step; None = the forecaster does not know it."""
        step: float | None = (self._ask(run, "status") or {}).get("step")
        return step

    def _ask(self, run: str, question: str) -> dict[str, Any] | None:
        url = f"{self._release(run).forecaster}/api/runs/{run}/{question}"
        return self._api.ask_forecaster(url)

    def _trainer(self, release: Release) -> dict[str, Any]:
        return self._patiently(lambda: self._api.get(release.trainer))

    def _release(self, run: str) -> Release:
        """Read at each use: an upgrade of the release gives its trainer another name."""
        name = self._names[run]
        path = f"/api/v1/namespaces/{self._api.namespace}/configmaps/{name}-sweep"
        data = self._patiently(lambda: self._api.get(path))["data"]
        return Release(
            trainer=data["trainer"],
            generator=data["generator"],
            forecaster=data["forecaster"],
            generators=int(data["generators"]),
            devices=int(data["devices"]),
            queued=data["queued"] == "true",
        )

    def _patiently(self, call: Callable[[], T]) -> T:
        """Try again while the API server is away. Raises what the last try raised."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return call()
            except PassingError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(self._poll_seconds)


def _num_pods(trainer: dict[str, Any], *states: str) -> int:
    """Pods of a Job in these states, or of a JobSet its Jobs that have such pods."""
    status = trainer.get("status", {})
    jobs = [status, *status.get("replicatedJobsStatus", [])]
    return sum(job.get(state) or 0 for job in jobs for state in states)


def _failure(trainer: dict[str, Any]) -> str | None:
    """Why the Job or JobSet was given up."""
    for condition in trainer.get("status", {}).get("conditions", []):
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason") or "it failed")
    return None


def _point(run: str, point: dict[str, Any]) -> CurvePoint:
    return CurvePoint(run=run, dataset="", **{name: point[name] for name in POINT_FIELDS})
