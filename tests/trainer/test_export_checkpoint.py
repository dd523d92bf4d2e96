"""`rollcast model export`: the model of an earlier checkpoint is the one that the run had then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from rollcast.config.errors import UserError
from rollcast.config.resolved import write_resolved
from rollcast.runfolder.files import RUN_FILE
from rollcast.runfolder.records import EvaluationRecord, as_json
from rollcast.trainer.export_checkpoint import export_checkpoint
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from tests.cli.command import rollcast
from tests.trainer.tiny_models import make_config, make_sequences


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict())


@pytest.fixture(scope="module")
def trained(
    ranks: Ranks, untied_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A run's folder with checkpoints of steps 1 and 2, and the model that it had at step 1."""
    root = tmp_path_factory.mktemp("run")
    config = make_config(untied_model, root, trainer={"shard_ranks": 1, "cpu": 0})
    group = LearnerGroup.build(config, ranks)
    for step in (1, 2):
        group.update(make_sequences(step))
        group.save(PolicyVersion(1, step), {}).result()
        group.export(root / f"model-{step}")
    readings = ((0, 0.5), (1, 0.7), (2, 0.3))
    (config.run_folder / "evaluations.jsonl").write_text(
        "".join(
            json.dumps(as_json(EvaluationRecord(1, step, rate, step / 10, standard_error=0.01)))
            + "\n"
            for step, rate in readings
        )
    )
    (config.run_folder / "format.json").write_text('{"format": 1}')
    write_resolved(config, config.run_folder / "run.json")
    return config.run_folder, root


def check_same(folder: Path, expected_folder: Path) -> None:
    exported, expected = weights(folder), weights(expected_folder)
    assert exported.keys() == expected.keys()
    assert all(torch.equal(exported[name], expected[name]) for name in expected)
    assert (folder / "tokenizer.json").is_file()


def test_the_best_is_exported_as_it_was(trained: tuple[Path, Path], tmp_path: Path) -> None:
    run, models = trained
    folder = tmp_path / "best"
    answered = rollcast("model", "export", run, "--folder", folder)
    assert answered.stdout == f"the model of step 1 is in {folder}\n", answered.stderr
    check_same(folder, models / "model-1")
    again = rollcast("model", "export", run, "--folder", folder, "--step", "2")
    assert again.returncode == 0
    assert again.stdout == (
        f"{folder} is there already and is left unchanged; name another --folder\n"
    )
    check_same(folder, models / "model-1")


def test_another_is_exported(ranks: Ranks, trained: tuple[Path, Path], tmp_path: Path) -> None:
    run, models = trained
    export_checkpoint(run / RUN_FILE, run / "checkpoints" / "1.2", tmp_path / "second", ranks)
    check_same(tmp_path / "second", models / "model-2")


def test_a_torn_checkpoint_is_one_sentence_and_leaves_nothing(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    config = make_config(untied_model, tmp_path)
    path = LearnerGroup.build(config, ranks).save(PolicyVersion(1, 3), {}).result()
    assert isinstance(path, Path)
    (data,) = path.glob("*.distcp")
    data.write_bytes(data.read_bytes()[:-1])
    write_resolved(config, tmp_path / RUN_FILE)
    with pytest.raises(UserError, match=r"^checkpoint .* cannot be read"):
        export_checkpoint(tmp_path / RUN_FILE, path, tmp_path / "out", ranks)
    assert not (tmp_path / "out").exists()
