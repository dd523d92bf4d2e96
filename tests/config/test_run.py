"""What a run file may hold: one sentence for each mistake, and never a secret in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, load_run_config, parse_run_config
from rollcast.config.yaml_loader import load_yaml

SECRET = "hunter-2-secret"


def written(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def parsed(**sections: Any) -> RunConfig:
    return parse_run_config({"run": "r", "model": {"path": "m"}, **sections}, source="test")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("run: [", r"not valid YAML \(line 1, column 7: .*\); correct that line"),
        (
            "run: a\nmodel: {path: m}\nseed: 1\nseed: 2\n",
            r"line 4, column 1: 'seed' is given twice",
        ),
        ("run: a\nmodel: {path: m, path: n}\n", r"line 2, column 18: 'path' is given twice"),
        ('{"run": "a", "run": "b"}', r"'run' is given twice"),
        ("[" * 100_000, "nested too deeply"),
        ("run: !!int x", "not valid YAML .* without tags"),
        ("run: !!timestamp x", "not valid YAML .* without tags"),
        ("run: !!bool x", "not valid YAML .* without tags"),
        ("run: !!python/name:os.system x", "not valid YAML"),
        ("run: a\n---\nrun: b\n", "not valid YAML"),
        ("- run\n", "holds a list, needs a mapping"),
        ("", "holds nothing, needs a mapping"),
    ],
)
def test_a_file_that_is_not_settings_is_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        load_run_config(written(tmp_path, text))
    assert str(caught.value).startswith(f"run file {tmp_path}/run.yaml: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read \(No such file"):
        load_run_config(tmp_path / "absent.yaml")
    path = tmp_path / "run.yaml"
    path.write_bytes(b"run: \xff\n")
    with pytest.raises(UserError, match="byte 5 is not UTF-8"):
        load_run_config(path)


@pytest.mark.parametrize("name", ["2024-11-21", "2024-13-01"])
def test_a_date_is_a_name_like_any_other(tmp_path: Path, name: str) -> None:
    assert load_run_config(written(tmp_path, f"run: {name}\nmodel: {{path: m}}\n")).run == name


def test_a_merged_mapping_may_be_overridden() -> None:
    assert load_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}", "test") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
    }


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain)
def test_what_holds_no_dates_reads_as_with_the_stock_loader(data: Any) -> None:
    for text in (yaml.safe_dump(data), json.dumps(data)):
        assert load_yaml(text, "test") == yaml.safe_load(text)


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan"])
@pytest.mark.parametrize(
    "setting",
    [
        "redis: {timeout_seconds: %s}",
        "budget: {device_hours: %s}",
        "recipe: {optimizer: {learning_rate: %s}}",
    ],
)
def test_every_number_is_finite(tmp_path: Path, setting: str, number: str) -> None:
    with pytest.raises(UserError, match="finite number"):
        load_run_config(written(tmp_path, f"run: r\nmodel: {{path: m}}\n{setting % number}\n"))


@pytest.mark.parametrize("wrong", [12345, [SECRET], {"is": SECRET}, 1.5, True, ""])
@pytest.mark.parametrize(
    ("field", "nest"),
    [
        ("redis.password", lambda value: {"redis": {"password": value}}),
        ("rpc.token", lambda value: {"rpc": {"token": value}}),
        ("http.token", lambda value: {"http": {"token": value}}),
        (
            "forecaster.source.token",
            lambda value: {
                "forecaster": {"source": {"kind": "prometheus", "url": "http://h", "token": value}}
            },
        ),
    ],
)
def test_a_secret_of_the_wrong_kind_is_refused_and_not_shown(
    field: str, nest: Any, wrong: Any
) -> None:
    with pytest.raises(UserError) as caught:
        parsed(**nest(wrong))
    assert str(caught.value).startswith(f"test: {field} (not shown) is wrong: ")
    assert SECRET not in str(caught.value)
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"redis: redis://:{SECRET}@host",
        f"redis: [{SECRET}]",
        f"forecaster: {{source: {SECRET}}}",
        f"redis: {{password: @{SECRET}}}",
        f'redis: {{password: "{SECRET}}}',
        f"redis: {{password: {SECRET}\nrpc: x: y",
        f"redis: {{password: a}}\nredis: {{password: {SECRET}}}",
    ],
)
def test_no_mistake_around_a_secret_shows_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError) as caught:
        load_run_config(written(tmp_path, f"run: r\nmodel: {{path: m}}\n{text}\n"))
    assert SECRET not in str(caught.value)


def test_a_long_value_is_shown_shortened() -> None:
    bomb: list[Any] = []
    for _ in range(60):
        bomb = [bomb, bomb]  # as YAML's aliases make it: 60 lists that would print as 2^60
    with pytest.raises(UserError) as caught:
        parsed(seed=bomb)
    assert "test: seed = [" in str(caught.value)
    assert len(str(caught.value)) < 1_000
    with pytest.raises(UserError) as caught:
        parsed(seed="x" * 10_000)
    assert len(str(caught.value)) < 1_000


def test_the_home_folder_is_meant_by_a_tilde(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run file is read by no shell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    dataset = {"kind": "jsonl", "name": "rows", "path": "~/rows.jsonl"}
    config = parsed(model={"path": "~/model"}, folder="~/runs", tasks={"dataset": dataset})
    assert (config.model.path, config.folder) == (str(tmp_path / "model"), tmp_path / "runs")
    assert config.tasks.dataset.path == tmp_path / "rows.jsonl"  # type: ignore[union-attr]
    assert parsed(folder="~nobody-has-this-name/runs").folder == Path("~nobody-has-this-name/runs")


def test_a_run_is_logged_to_each_kind_once() -> None:
    with pytest.raises(
        UserError, match="log = '2 of kind tensorboard' is wrong: a run is logged to each kind once"
    ):
        parsed(log=[{"kind": "tensorboard"}, {"kind": "tensorboard"}])
    assert len(parsed(log=[{"kind": "tensorboard"}, {"kind": "wandb"}]).log) == 2


def test_the_key_on_is_a_setting_and_not_a_boolean(tmp_path: Path) -> None:
    """YAML 1.1 reads `on` as true, and Helm writes that."""
    path = tmp_path / "run.yaml"
    for key in ("on", "'on'", "true", "'true'"):
        path.write_text(
            f"run: a\nmodel: {{path: x}}\nrecord: {{{key}: [gap, failed], weights: step}}\n"
        )
        record = load_run_config(path).record
        assert record.on == ("gap", "failed")
        assert record.weights == "step"
