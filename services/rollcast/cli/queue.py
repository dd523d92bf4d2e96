"""`rollcast queue RUN`: where each task of a run is and why, and repairs of single tasks."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli.output import echo_json, say
from rollcast.config.errors import PassingError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rollcast.config.connections import Redis
    from rollcast.rollouts.base import Dead, Finished, Waiting
    from rollcast.rollouts.records import Claim
    from rollcast.rollouts.redis_operator_queue import Action, QueueView, Repair
    from rollcast.runfolder.records import TaskMark

REPAIRED_STATES = {"requeue": "claimed or dead", "bury": "waiting or claimed"}
OUTCOMES_WITH_REASON = ("filtered", "redone", "stale", "dead")


def queue(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="folder of a run, such as runs/demo; on a cluster its run file"
        ),
    ],
    task: Annotated[
        int | None, typer.Option("--task", min=0, help="one task: its state and its history")
    ] = None,
    requeue: Annotated[
        int | None,
        typer.Option("--requeue", min=0, help="let this claimed or dead task be sampled again"),
    ] = None,
    bury: Annotated[
        int | None, typer.Option("--bury", min=0, help="give up this waiting or claimed task")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="why the task is buried; recorded with it")
    ] = None,
    take: Annotated[
        bool,
        typer.Option("--take", help="also a claimed task whose generator still works on it"),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Tasks that wait, are claimed or finished; those that were given up, filtered or redone, with
    the reason.

    Redis and tasks.jsonl (its newest 16 MiB) are read. --requeue and --bury change one task,
    atomically, or refuse.

    \b
    rollcast queue runs/demo
    rollcast queue runs/demo --task 17
    rollcast queue runs/demo --requeue 17
    rollcast queue runs/demo --bury 17 --reason "its verifier hangs"
    """
    from rollcast.cli.show import load_run_settings
    from rollcast.config.run import load_run_config

    _check_options(task, requeue, bury, reason, take=take)
    config = load_run_config(run) if run.is_file() else load_run_settings(run)
    is_named = {"host", "socket"} & config.redis.model_fields_set
    if config.redis.is_embedded or not is_named:
        # Only the run folder says where its server listens
        config = load_run_settings(config.run_folder)
    places = (config.redis, config.run_folder)
    min_idle_seconds = 0.0 if take else config.weights.max_claim_silence_seconds
    if requeue is not None:
        _repair(*places, "requeue", requeue, "", min_idle_seconds, as_json=as_json)
    elif bury is not None:
        words = reason or "no reason given"
        _repair(*places, "bury", bury, words, min_idle_seconds, as_json=as_json)
    else:
        _show(*places, task, as_json=as_json)


def _check_options(
    task: int | None, requeue: int | None, bury: int | None, reason: str | None, *, take: bool
) -> None:
    """Raises UserError."""
    if sum(number is not None for number in (task, requeue, bury)) > 1:
        raise UserError("--task, --requeue, --bury: exclude one another; give one of them")
    if reason is not None and bury is None:
        raise UserError("--reason: belongs to --bury; give --bury TASK too")
    if reason is not None and len(reason) > 300:
        raise UserError(f"--reason: has {len(reason)} characters; give 300 at most")
    if take and requeue is None and bury is None:
        raise UserError("--take: belongs to --requeue and --bury; give one of them too")


def _repair(
    redis: Redis,
    run_folder: Path,
    action: Action,
    task: int,
    reason: str,
    min_idle_seconds: float,
    *,
    as_json: bool,
) -> None:
    """Raises UserError if the task is not in a state that the action needs."""
    from rollcast.config.printable import printable
    from rollcast.rollouts.errors import QueueAway
    from rollcast.rollouts.redis_operator_queue import RedisOperatorQueue
    from rollcast.runfolder.event_log import note

    try:
        with closing(RedisOperatorQueue(redis, run_folder.name)) as operator_queue:
            recorded_reason = f"buried by an operator: {printable(reason)}"
            repair = operator_queue.repair(
                action, task, recorded_reason, min_idle_seconds=min_idle_seconds
            )
    except QueueAway as error:
        raise PassingError(
            f"redis: {redis.place}: {error}; whether task {task} was changed is not known, "
            "and it is safe to repeat the command"
        ) from error
    if not repair.is_done:
        raise UserError(f"--{action} {task}: {_refusal(run_folder.name, action, task, repair)}")
    note(run_folder, f"an operator gave --{action} {task} to `rollcast queue`")
    if as_json:
        found = {"found": repair.state, "generator": repair.owner or None}
        echo_json({"task": task, "action": action, **found})
        return
    former = f" It was claimed by {repair.owner}, whose answer is now refused." * bool(repair.owner)
    if action == "bury":
        say(f"task {task} is buried: the trainer gives it up.{former}")
    elif repair.state == "dead":
        say(f"task {task} is off the queue: a trainer that has not settled it dispatches it again.")
    else:
        say(f"task {task} waits again.{former}")


def _refusal(run: str, action: Action, task: int, repair: Repair) -> str:
    match repair.state:
        case "claimed":
            return (
                f"{repair.owner} works on the task, renewed {repair.idle_seconds:.0f} s ago; give "
                "--take too to take the task from it"
            )
        case "absent":
            return (
                f"the queue of run {run} has no such task: it is settled, or was never dispatched; "
                f"--task {task} shows its history"
            )
        case "damaged":
            return "its record and its entry differ; a running trainer repairs that within seconds"
    return f"the task is {repair.state}; {action} needs one that is {REPAIRED_STATES[action]}"


def _show(redis: Redis, run_folder: Path, task: int | None, *, as_json: bool) -> None:
    from rollcast.rollouts.errors import QueueAway
    from rollcast.rollouts.redis_operator_queue import QueueView, RedisOperatorQueue

    redis_place: str | None = redis.place
    try:
        with closing(RedisOperatorQueue(redis, run_folder.name)) as operator_queue:
            view = operator_queue.look(num_dead=20 if task is None else 1000)
    except QueueAway as error:
        typer.echo(f"{redis_place}: {error}; only the run folder is shown", err=True)
        view = QueueView()
        redis_place = None
    report = {"run": run_folder.name, "redis": redis_place, **_report(run_folder, view, task)}
    if as_json:
        echo_json(report)
    elif task is None:
        _print_queue(report)
    else:
        _print_task(report, task)


def _report(run_folder: Path, view: QueueView, task: int | None) -> dict[str, Any]:
    """All that is printed, as JSON; of one task, if one is asked for."""
    report: dict[str, Any] = {
        "tasks": [row for row in _task_rows(view) if task in (None, row["task"])],
        "dead_entries": [
            asdict(entry) for entry in view.dead_entries if task is None or entry.task == str(task)
        ],
    }
    marks = _marks(run_folder)
    if task is not None:
        from rollcast.runfolder.records import as_json

        history = [as_json(mark) | {"tasks": [task]} for mark in marks if task in mark.tasks]
        return report | {"history": history[::-1]}
    counts: Counter[tuple[str, str]] = Counter()
    for mark in marks:
        if mark.what in OUTCOMES_WITH_REASON:
            counts[mark.what, mark.reason or ""] += len(mark.tasks)
    outcomes = [
        {"outcome": outcome, "tasks": count, "reason": reason}
        for (outcome, reason), count in counts.most_common()
    ]
    return report | {"damaged": view.num_damaged, "outcomes": outcomes}


def _task_rows(view: QueueView) -> list[dict[str, Any]]:
    """The tasks on the queue, by number."""
    outstanding = view.outstanding
    by_state: dict[str, Mapping[int, Waiting | Claim | Finished | Dead]] = {
        "waiting": outstanding.waiting,
        "claimed": outstanding.claims,
        "finished": outstanding.finished,
        "dead": outstanding.dead,
    }
    rows = []
    for state, tasks in by_state.items():
        for task, item in tasks.items():
            is_claimed = state == "claimed"
            rows.append(
                {
                    "task": task,
                    "state": state,
                    "purpose": str(item.purpose),
                    "failures": item.attempt,
                    "generator": getattr(item, "owner", None),
                    "claimed_at": getattr(item, "claimed_at", None),
                    "idle_seconds": view.idle_seconds.get((item.purpose, item.stream_id))
                    if is_claimed
                    else None,
                    "reason": getattr(item, "reason", None),
                }
            )
    return sorted(rows, key=lambda row: row["task"])


def _marks(run_folder: Path) -> Iterator[TaskMark]:
    """The newest first."""
    from rollcast.runfolder.files import TASKS
    from rollcast.runfolder.record_file import MAX_READ_BYTES, newest_lines
    from rollcast.runfolder.records import TaskMark, parse

    for line in newest_lines(run_folder / TASKS, MAX_READ_BYTES):
        try:
            yield parse(line, TaskMark)
        except ValueError:
            continue


def _print_queue(report: dict[str, Any]) -> None:
    from rollcast.cli.report import show_table

    tasks = report["tasks"]
    counts = Counter(row["state"] for row in tasks)
    if report["redis"] is not None:
        states = ("waiting", "claimed", "finished", "dead")
        say(f"run {report['run']}, queue at {report['redis']}")
        say(", ".join(f"{counts[state]} {state}" for state in states))
    if report["damaged"]:
        say(f"{report['damaged']} damaged records; a running trainer repairs them within seconds")
    if counts["claimed"]:
        claimed = [row for row in tasks if row["state"] == "claimed"]
        show_table(("task", ""), [(str(row["task"]), _in_words(row)) for row in claimed], ("",))
    if report["dead_entries"]:
        entries = [
            (_at(row["at"]), *(_quote(row[name]) for name in ("task", "failures", "reason")))
            for row in report["dead_entries"]
        ]
        show_table(("dead entries", "task", "failures", "reason"), entries, ("reason",))
    if report["outcomes"]:
        outcomes = [
            # The most frequent
            (row["outcome"], str(row["tasks"]), _quote(row["reason"]))
            for row in report["outcomes"][:20]
        ]
        show_table(("outcome", "tasks", "reason"), outcomes, ("reason",))


def _print_task(report: dict[str, Any], task: int) -> None:
    for row in report["tasks"]:
        say(f"task {task}: {_in_words(row)}")
    if not report["tasks"] and report["redis"] is not None:
        say(f"task {task} is not on the queue")
    for mark in report["history"]:
        details = [mark.get("generator"), mark.get("reason")]
        outcome = ": ".join([mark["what"].replace("_", " "), *filter(None, details)])
        say(f"{_at(mark.get('at'))} {_quote(outcome)}")
    for entry in report["dead_entries"]:
        say(f"{_at(entry['at'])} entry of :dead: {_quote(entry['reason'])}")


def _in_words(row: dict[str, Any]) -> str:
    from rollcast.cli.screen.figures import duration

    words = [f"{row['state']}, {row['purpose']}, {row['failures']} failures"]
    if row["state"] == "claimed":
        words.append(f"by {row['generator']} for {duration(time.time() - row['claimed_at'])}")
        idle = row["idle_seconds"]
        words.append("renewed " + ("?" if idle is None else f"{duration(idle)} ago"))
    if row["reason"]:
        words.append(_quote(row["reason"]))
    return ", ".join(words)


def _quote(text: str) -> str:
    """A reason quotes other programs; its line breaks must not make it look like other rows."""
    from rollcast.config.printable import short_line

    return short_line(text, 300)


def _at(unix_seconds: float | None) -> str:
    try:
        return "?" if unix_seconds is None else str(datetime.fromtimestamp(unix_seconds))[:19]
    except (ValueError, OverflowError, OSError):  # an id that another program gave an entry
        return "?"
