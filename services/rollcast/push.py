"""Push the evaluations of a run of any trainer to a forecaster; forecast and advice come back as
numbers to log.

    from rollcast.push import Pusher

    pusher = Pusher("http://forecaster:8400", "my-run", metric="eval/accuracy", budget=1000)
    pusher.log({"eval/accuracy": 0.41, "loss": 1.2}, step=100)  # as W&B and verl log

    from rollcast.push import follow

    follow(trainer, pusher, stop_on_advice=True)  # a trainer of TRL or transformers

Only the standard library is needed. A network error neither ends a trainer nor delays it beyond
`timeout_seconds`. Points that could not be sent are kept, counted, and sent with the next
evaluation.
"""

import json
import logging
import math
import os
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping
from typing import Any

MAX_KEPT = 1_000
"""Points that wait for the forecaster. Beyond this number the oldest are dropped, and counted."""
ANSWERED = {"new", "repeated", "step", "advice", "headline", "reason", "metrics"}
log = logging.getLogger("rollcast.push")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to no other address."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Pusher:
    """Attributes:
    told: numbers of the last answer by name; empty before the first answer.
    headline, reason: of the last advice.
    failures: pushes that failed; `last_failure` says why.
    dropped: points that were never sent.
    """

    def __init__(
        self,
        url: str,
        run: str,
        *,
        metric: str = "eval_reward",
        unit: str = "steps",
        budget: float | None = None,
        worth: float | None = None,
        price: float | None = None,
        incarnation: int = 1,
        token: str | None = None,
        timeout_seconds: float = 5.0,
    ) -> None:
        """`metric`: the name of the pass rate in [0, 1] among the logged metrics. `budget`: compute
        at which the run ends, in `unit`. `worth`: gain in pass rate that pays for the rest of the
        budget. `incarnation`: one more after each restart from a checkpoint; a rerun from the start
        needs another name instead. `token`: None = ROLLCAST_PUSH_TOKEN.

        Raises ValueError: the address is not HTTP, or a value is not a number.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                f"url: {url!r} is not the address of a forecaster; give http://HOST:8400"
            )
        self.metric = metric
        self.budget = _number(budget)
        self._url = f"{url.rstrip('/')}/api/push"
        self._run = run
        self._incarnation = int(incarnation)
        self._fixed = {"run": run, "unit": unit, "worth": _number(worth), "price": _number(price)}
        self._token = token if token is not None else os.environ.get("ROLLCAST_PUSH_TOKEN", "")
        self._timeout_seconds = timeout_seconds
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MAX_KEPT)
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._sending: threading.Thread | None = None
        self._stops = 0
        self._warned = False
        self.told: dict[str, float] = {}
        self.headline = self.reason = self.last_failure = ""
        self.failures = self.dropped = 0

    @property
    def says_stop(self) -> bool:
        """Whether the last three answers said stop, each for a new evaluation that is the newest of
        the run.

        The points of a rerun under the name of an older run are not the newest, so the older
        forecast cannot end it.
        """
        # Consecutive answers that must say stop: a forecast changes with its last points
        return self._stops >= 3

    def log(self, data: Mapping[str, Any], step: int) -> dict[str, float]:
        """Push `metric` if it is in `data`. Returns the numbers of the answer, to be logged."""
        return self.push(step, data[self.metric]) if self.metric in data else {}

    def push(
        self,
        step: int,
        pass_rate: float,
        *,
        compute: float | None = None,
        standard_error: float | None = None,
    ) -> dict[str, float]:
        """Push one evaluation. `compute`: since the start, in the unit of the run; None = the step.

        Returns the numbers of the answer. Numbers of numpy and torch are accepted. A value that is
        not a pass rate or not a number is dropped and counted.
        """
        try:
            point: dict[str, Any] = {
                "step": int(step),
                "pass_rate": _number(pass_rate),
                "compute": _number(compute),
                "standard_error": _number(standard_error),
                "incarnation": self._incarnation,
            }
        except Exception as error:  # of whatever library the value is
            return self._drop(f"{self.metric} at step {step} cannot be sent: {error}")
        if point["pass_rate"] is None or not 0 <= point["pass_rate"] <= 1:
            return self._drop(
                f"{self.metric} = {pass_rate} at step {step} is not a pass rate in [0, 1]"
            )
        self.dropped += len(self._waiting) == MAX_KEPT
        self._waiting.append(point)
        if self._sending is not None and self._sending.is_alive():
            return self._fail("the last push has not ended")
        points = list(self._waiting)
        answers: list[dict[str, Any] | str] = []
        self._sending = threading.Thread(
            target=lambda: answers.append(self._send(points)), daemon=True
        )
        self._sending.start()
        self._sending.join(self._timeout_seconds)
        answer = answers[0] if answers else f"no answer within {self._timeout_seconds:g} s"
        if isinstance(answer, str):
            return self._fail(answer)
        for _ in points:
            self._waiting.popleft()
        self.told = {str(name): float(value) for name, value in answer["metrics"].items()}
        self.headline = answer["headline"] or ""
        self.reason = answer["reason"] or ""
        is_newest = answer["new"] > 0 and answer["step"] == point["step"]
        self._stops = self._stops + 1 if is_newest and answer["advice"] == "stop" else 0
        if answer["repeated"] == len(points) and not self._warned:
            self._warned = True
            log.warning(
                "the forecaster at %s knows run %r up to step %s already; push a rerun under "
                "another name, and give "
                "incarnation = 2 and so on after a restart from a checkpoint",
                self._url, self._run, answer["step"],
            )  # fmt: skip
        return dict(self.told)

    def _send(self, points: list[dict[str, Any]]) -> dict[str, Any] | str:
        """The answer, or a sentence on the failure."""
        try:
            payload = self._fixed | {"budget": _number(self.budget), "points": points}
            body = json.dumps(payload, allow_nan=False).encode()
            headers = {"content-type": "application/json", "authorization": f"Bearer {self._token}"}
            request = urllib.request.Request(self._url, body, headers)  # noqa: S310  # checked to be HTTP
            with self._opener.open(request, timeout=self._timeout_seconds) as reply:
                # A larger answer is not of the forecaster
                answer = json.loads(reply.read(1 << 20))
            return (
                answer
                if _is_answer(answer)
                else "the response did not come from a Rollcast forecaster"
            )
        except urllib.error.HTTPError as error:
            with error:
                return f"status {error.code}: {error.read(500).decode(errors='replace')}"
        except Exception as error:  # no error of any kind may end a training
            return f"{type(error).__name__}: {error}"

    def _drop(self, failure_message: str) -> dict[str, float]:
        self.dropped += 1
        return self._fail(failure_message)

    def _fail(self, failure_message: str) -> dict[str, float]:
        self.failures += 1
        if failure_message != self.last_failure:
            log.warning("the push to the forecaster at %s failed: %s", self._url, failure_message)
        self.last_failure = failure_message
        if failure_message.startswith("status 422"):
            # The forecaster would refuse these points again. If they were kept, they would block
            # all later ones.
            self.dropped += len(self._waiting)
            self._waiting.clear()
        return {}


def _is_answer(answer: object) -> bool:
    return (
        isinstance(answer, dict)
        and answer.keys() >= ANSWERED
        and isinstance(answer["metrics"], dict)
    )


def _number(value: Any) -> float | None:
    """A number that JSON can hold; None stays None.

    Raises ValueError: not a number, or not finite.
    """
    if value is None:
        return None
    try:
        number = float(value)
    except Exception as error:  # of whatever library the value is
        raise ValueError(f"{value!r:.50} is not a number") from error
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number


def follow(trainer: Any, pusher: Pusher, *, stop_on_advice: bool = False) -> Any:
    """Push what a trainer of TRL or transformers logs, and log the answer. Returns the callback.

    It runs before the callbacks that report to W&B and others, so that they see the forecast.
    `stop_on_advice`: end the training in order once three answers in a row say stop.
    """
    from transformers import TrainerCallback

    class Following(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if pusher.budget is None and state.max_steps > 0:
                pusher.budget = float(state.max_steps)

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
        ) -> None:
            if logs is None or pusher.metric not in logs:
                return
            if state.is_world_process_zero:
                forecast_metrics = pusher.log(logs, state.global_step)
                logs.update(forecast_metrics)
                if state.log_history and state.log_history[-1].get("step") == state.global_step:
                    state.log_history[-1].update(forecast_metrics)
            if stop_on_advice and _on_every_rank(pusher.says_stop):
                control.should_training_stop = True

    callback = Following()
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback


def _on_every_rank(decision: bool) -> bool:
    """The decision of rank 0.

    Ranks that decide differently would wait for one another permanently.
    """
    import torch.distributed as ranks

    if not (ranks.is_available() and ranks.is_initialized()):
        return decision
    decisions = [decision]
    ranks.broadcast_object_list(decisions, src=0)
    return bool(decisions[0])
