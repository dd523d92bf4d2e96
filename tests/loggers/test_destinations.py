"""What each package was told is read back: by TensorBoard, by a real MLflow server; W&B's file by
our reader of it.

That reader is held against files that W&B alone wrote (tests/curves/formats): W&B itself offers
none any more.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rollcast.config.run import RunConfig
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import forecast_source
from rollcast.curves.formats import wandb_offline
from rollcast.curves.formats.log_file import LogFile
from rollcast.loggers.feed import Feed
from rollcast.loggers.service import open_destination
from testkit.mlflow_server import START_SECONDS, mlflow_server
from tests.curves.one_run import as_logged, history, of_run_folder, said
from tests.loggers.told_run import (
    COMPLETION,
    PASS_RATES,
    REWARDS,
    STEPS,
    run_config,
    write_run,
    write_steps,
)

INSTALL = "pip install -r requirements/loggers.txt"
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # theirs, of their own dependencies
    pytest.mark.timeout(300),
]


def tell(config: RunConfig, run_id: str | None = None, feed: Feed | None = None) -> str | None:
    """All records of the run's folder; the id under which it is known."""
    destination = open_destination(
        config.log[0], config.run_folder, config.model_dump(mode="json"), run_id
    )
    destination.open()
    entries = (feed or Feed(config.run_folder, {})).read()
    destination.write(entries)
    destination.write(entries[-1:])  # as after a kill
    destination.close()
    return destination.run_id


def test_tensorboard_reads_the_run_and_forgets_a_lost_history(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=f"tensorboard is not installed: {INSTALL}")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = run_config(tmp_path, {"kind": "tensorboard"})
    write_run(config.run_folder)
    feed = Feed(config.run_folder, {})
    tell(config, feed=feed)
    read = EventAccumulator(str(config.run_folder / "tensorboard")).Reload()
    assert {
        event.step: event.value for event in read.Scalars("train/reward_mean")
    } == pytest.approx(REWARDS)
    assert {event.step: event.value for event in read.Scalars("eval/pass_rate")} == pytest.approx(
        PASS_RATES
    )
    samples = read.Tensors("samples/sums")
    assert len(samples) == len(PASS_RATES)
    text = samples[-1].tensor_proto.string_val[0].decode()
    assert len(text.splitlines()) == 3, "what the model wrote stays in its row"
    assert "4 ¦ 5⏎'9'" in text
    settings = read.Tensors("run")[0].tensor_proto.string_val[0].decode()
    assert "not-to-be-told" not in settings
    assert "max_completion_tokens" in settings
    write_steps(config.run_folder, range(6, 8))  # a restart from the checkpoint of step 5
    tell(config, feed=feed)
    again = EventAccumulator(str(config.run_folder / "tensorboard")).Reload()
    assert [event.step for event in again.Scalars("train/reward_mean")][:7] == [1, 2, 3, 4, 5, 6, 7]
    assert 8 not in PASS_RATES or [event.step for event in again.Scalars("eval/pass_rate")] == [
        0,
        4,
    ]


def test_an_offline_run_of_wandb_holds_the_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason=f"wandb is not installed: {INSTALL}")
    config = run_config(tmp_path, {"kind": "wandb", "mode": "offline", "project": "mine"})
    write_run(config.run_folder)
    known = tell(config)
    [written] = config.run_folder.rglob("*.wandb")
    content = written.read_bytes()
    assert written.parent.name.endswith(f"-{known}")
    assert all(text in content for text in (b"mine", b"told", b"max_completion_tokens"))
    assert b"not-to-be-told" not in content
    rows = list(wandb_offline.rows(LogFile(written, print)))
    rewards = {row["step"]: row["train/reward_mean"] for row in rows if "train/reward_mean" in row}
    assert rewards == pytest.approx(REWARDS)
    assert [row["eval/pass_rate"] for row in rows if "eval/pass_rate" in row] == list(
        PASS_RATES.values()
    )
    assert {row["forecast/advice"] for row in rows if "forecast/advice" in row} == {
        "Wait for 3 more evaluations. Few evaluations."
    }
    tables = [json.loads(path.read_text()) for path in config.run_folder.rglob("*.table.json")]
    assert len(tables) == len(PASS_RATES)
    assert tables[0]["data"][0][-1] == COMPLETION


@pytest.mark.parametrize(
    ("kind", "more", "written"),
    [
        ("tensorboard", {}, "tensorboard"),
        ("wandb", {"mode": "offline", "project": "mine"}, "**/*.wandb"),
    ],
)
def test_what_was_logged_is_forecast_as_the_folder_that_tells_no_more(
    kind: str, more: dict[str, str], written: str, tmp_path: Path
) -> None:
    pytest.importorskip(kind, reason=f"{kind} is not installed: {INSTALL}")
    config = run_config(tmp_path, {"kind": kind, **more})
    config.run_folder.mkdir(parents=True)
    records = as_logged(history(elastic=False))
    expected = said(of_run_folder(records, config.run_folder))
    tell(config)
    [source] = config.run_folder.glob(written)
    deadline = time.monotonic() + START_SECONDS
    while kind == "wandb" and len(list(wandb_offline.rows(LogFile(source, print)))) < len(records):
        assert time.monotonic() < deadline, (
            "W&B's own process ends the file a moment after `finish` has returned"
        )
        time.sleep(0.2)
    columns = Columns("eval/compute_device_hours", "eval/pass_rate", "eval/standard_error")
    assert said(forecast_source(str(source), columns, None, None, None)) == expected


@pytest.fixture(scope="module")
def tracking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip(
        "mlflow.server", reason=f"mlflow with its server is not installed: {INSTALL}"
    )
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


def test_an_mlflow_server_holds_the_run_and_takes_it_up_again(
    tmp_path: Path, tracking_server: str
) -> None:
    from mlflow import MlflowClient

    config = run_config(tmp_path, {"kind": "mlflow", "url": tracking_server, "experiment": "sums"})
    write_run(config.run_folder)
    feed = Feed(config.run_folder, {})
    known = tell(config, feed=feed)
    assert known is not None
    client = MlflowClient(tracking_server)
    found = client.get_run(known)
    assert (found.info.status, found.info.run_name) == ("FINISHED", "told")
    assert found.data.params["recipe.max_completion_tokens"] == "8"
    assert "not-to-be-told" not in str(found.data.params)
    assert found.data.tags["forecast/verdict"] == "too_early"
    rewards = client.get_metric_history(known, "train/reward_mean")
    assert {item.step: item.value for item in rewards} == pytest.approx(REWARDS)
    assert len(rewards) == len(STEPS), "told twice, kept once"
    [artifact] = client.list_artifacts(known, "samples/sums")[:1]
    assert artifact.path == "samples/sums/step-000000.md"
    write_steps(config.run_folder, range(8, 9))
    assert tell(config, run_id=known, feed=feed) == known


def test_a_server_that_is_not_there_is_an_error_soon_and_no_refusal(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason=f"mlflow is not installed: {INSTALL}")
    from rollcast.loggers.entries import RefusedError

    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"  # bound, and nobody listens
        config = run_config(tmp_path, {"kind": "mlflow", "url": url})
        with pytest.raises(Exception, match=r"refused|Max retries") as raised:
            open_destination(
                config.log[0], config.run_folder, config.model_dump(mode="json"), None
            ).open()
        assert not isinstance(raised.value, RefusedError)
