"""The commands of docs/how-to/replay.md, on a run whose steps are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

import rollcast
from rollcast.trainer.learner.ranks import Ranks
from testkit.tiny_model import make_tiny_model
from testkit.trainer.recorded_run import make_recorded_run, recorded_config
from tests.cli.command import process
from tests.documents.documented import ROOT, commands

DOCUMENTED = sorted(
    {
        command.words
        for command in commands(ROOT / "docs" / "how-to" / "replay.md")
        if command.words[:2] == ("rollcast", "replay") and "--step" in command.words
    }
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    make_tiny_model(folder / "model", hidden=32, max_length=128)
    config = recorded_config(folder / "model", folder, steps=2)
    make_recorded_run(config, ranks)
    return config.run_folder


@pytest.mark.parametrize("words", DOCUMENTED, ids=" ".join)
def test_a_documented_command_replays(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """With a step and a group that this run has."""
    bundle = rollcast.load_step(run / "recorded" / "step-2")
    known = {"runs/demo": run, "40": "2", "1203": bundle.groups[0].sequence}
    (tmp_path / "other.py").write_text("def f(inputs):\n    return 2 * inputs.logprobs\n")
    monkeypatch.chdir(tmp_path)
    done = process(*(known.get(word, word) for word in words[1:]))
    assert done.returncode == 0, done.stderr
    assert "generator" in done.stdout
