"""Priors in files: what was written is read, and what cannot be is refused in one sentence."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rollcast.scaling.posterior.prior import DEFAULT_PRIOR
from rollcast.scaling.posterior.prior_file import read_prior
from rollcast.scaling.posterior.stack import LEARNED, learned_stack


def test_a_prior_that_was_written_is_read_again(tmp_path: Path) -> None:
    prior = replace(
        DEFAULT_PRIOR, asymptote=(0.4, 0.1), tail_weight=0.2, midpoint_reference=300.0, turn_up=1.0
    )
    content = {"learned_from": ["one", "two"], "prior": asdict(prior)}
    (tmp_path / "prior.json").write_text(json.dumps(content))
    assert read_prior(tmp_path / "prior.json") == prior


def test_what_a_file_leaves_out_keeps_its_default(tmp_path: Path) -> None:
    (tmp_path / "prior.json").write_text('{"prior": {"log_exponent": [-0.5, 1]}}')
    assert read_prior(tmp_path / "prior.json") == replace(DEFAULT_PRIOR, log_exponent=(-0.5, 1.0))
    (tmp_path / "prior.json").write_text('{"prior": {"start_transient": [0.3, 0.1]}}')
    assert read_prior(tmp_path / "prior.json") == replace(
        DEFAULT_PRIOR, start_transient=(0.1, 0.3)
    ), "of any length"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no prior; give a JSON file"),
        ("[]", "is no prior; give a JSON file"),
        ("[" * 100_000, "is no prior; give a JSON file"),
        ('{"prior": 3}', "is no prior; give a JSON file"),
        ('{"prior": {"slope": 1}}', "prior.slope is no field of a prior; those are "),
        ('{"prior": {"asymptote": 0.5}}', "prior.asymptote 0.5: give a list of 2 numbers."),
        ('{"prior": {"asymptote": [0.5, -1]}}', "prior.asymptote -1: give a number above 0."),
        (
            '{"prior": {"asymptote": [0.5, "wide"]}}',
            "prior.asymptote 'wide': give a number above 0.",
        ),
        ('{"prior": {"log_exponent": [-1, -1]}}', "prior.log_exponent -1: give a number above 0."),
        ('{"prior": {"tail_scale": [0, 0.04]}}', "prior.tail_scale 0: give a number above 0."),
        (f'{{"prior": {{"turn_rate": 1{"0" * 400}}}}}', "give a number of 0 or more."),
        (f'{{"prior": {{"{"x" * 10_000}": 1}}}}', f"prior.{'x' * 80} is no field"),
        (f'{{"prior": {{"transient": {[0.5] * 101}}}}}', "give a list of 1 to 100 numbers."),
        ('{"prior": {"transient": []}}', "prior.transient []: give a list of 1 to 100 numbers."),
        (
            '{"prior": {"drift_weight": [0, 0, 0, 0]}}',
            "prior.drift_weight [0, 0, 0, 0]: give one weight above 0 at least.",
        ),
        ('{"prior": {"tail_weight": 1.5}}', "prior.tail_weight 1.5: give a probability."),
        ('{"prior": {"turn_rate": NaN}}', "prior.turn_rate nan: give a number of 0 or more."),
    ],
)
def test_a_file_that_holds_no_prior_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "prior.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        read_prior(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert sentence in str(refused.value)


def test_a_file_that_is_absent_or_endless_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"absent\.json: cannot be read \(No such file or directory\)"
    ):
        read_prior(tmp_path / "absent.json")
    (tmp_path / "large.json").write_text('{"prior": {}}' + " " * (1 << 20))
    with pytest.raises(ValueError, match="larger than a megabyte"):
        read_prior(tmp_path / "large.json")


def a_stack(**changed: object) -> dict[str, object]:
    return asdict(learned_stack()) | changed


def test_the_shipped_numbers_are_those_of_any_run() -> None:
    assert read_prior(LEARNED) == DEFAULT_PRIOR
    assert DEFAULT_PRIOR.stack == learned_stack()
    assert json.loads(LEARNED.read_text())["left_out"] is None


def test_a_file_replaces_the_stack_as_a_whole_or_takes_it_away(tmp_path: Path) -> None:
    path = tmp_path / "prior.json"
    path.write_text(json.dumps({"prior": {"stack": a_stack(degrees=9.0)}}))
    assert read_prior(path) == replace(DEFAULT_PRIOR, stack=replace(learned_stack(), degrees=9.0))
    path.write_text('{"prior": {"stack": null}}')
    assert read_prior(path) == replace(DEFAULT_PRIOR, stack=None)


@pytest.mark.parametrize(
    ("stack", "sentence"),
    [
        (
            3,
            (
                "prior.stack: give an object with exactly the fields weights, scale, side, "
                "degrees, persistence, late_"
            ),
        ),
        ({"degrees": 3.0}, "prior.stack: give an object with exactly the fields weights, "),
        (a_stack(more=1), "prior.stack: give an object with exactly the fields weights, "),
        (a_stack(weights=[0.5, 0.5]), "prior.stack.weights: give a list of 7 numbers."),
        (a_stack(weights=0.5), "prior.stack.weights: give a list of 7 numbers."),
        (
            a_stack(weights=[0.5] * 7),
            "prior.stack.weights: add up to 3.5; give weights that add up to 1.",
        ),
        (
            a_stack(scale=[0.1, "wide", 0.2]),
            "prior.stack.scale 'wide': give a number from -50 to 50.",
        ),
        (a_stack(scale=[0.1, 1e3, 0.2]), "prior.stack.scale 1000.0: give a number from -50 to 50."),
        (a_stack(side=[math.nan, 0.0]), "prior.stack.side nan: give a number from -50 to 50."),
        (a_stack(side=[True, 0.0]), "prior.stack.side True: give a number from -50 to 50."),
        (a_stack(degrees=1.0), "prior.stack.degrees 1: give a number above 1."),
        (a_stack(persistence=-0.1), "prior.stack.persistence -0.1: give a number of 0 or more."),
        (a_stack(late_take_off=1.2), "prior.stack.late_take_off 1.2: give a probability."),
    ],
)
def test_a_bad_stack_is_refused_in_one_sentence_that_names_the_field(
    tmp_path: Path, stack: object, sentence: str
) -> None:
    path = tmp_path / "prior.json"
    path.write_text(json.dumps({"prior": {"stack": stack}}))
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        read_prior(path)
    assert str(refused.value).startswith(f"{path}: {sentence}")
