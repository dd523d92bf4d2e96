"""What the newest rules change of a run that is over, one of an earlier release and one of this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rollcast.cli.main import app
from rollcast.config.rules_versions import GRADING_RULES, SPLIT_RULES
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.local.audit import RunAudit, audit
from rollcast.local.resumed import check_run_folder
from rollcast.runfolder.files import CONTROLLER, SAMPLES, checkpoint_place
from rollcast.runfolder.rules import checkpoint_rules, find_starting_rules
from rollcast.runfolder.writing import replace_json
from rollcast.tasks.prompts import load
from rollcast.trainer.control.progress import Progress

BENCHMARK = "How many positive integers n are there such that n^2+2n is prime?"
SEED = 1
"""With it neither of the two contaminated prompts is held out."""
EVALUATED = {
    # Reference of a downstream prompt -> an answer that was stored, and its reward under the rules
    # of then and of now
    "0.00000012": (r"\boxed{0.00000034}", 1.0, 0.0),
    "(1,2)": (r"\boxed{\{1,2\}}", 1.0, 0.0),
    "7": (r"\boxed{\neq 7}", 1.0, 0.0),
    r"\pi": (r"\boxed{3.14159}", 0.0, 1.0),
    "0.5": (r"\boxed{1/2}", 1.0, 1.0),
    "42": (r"<think>hm</think>\boxed{42}", 1.0, 1.0),
    "41": (r"\boxed{42}", 0.0, 0.0),
}


def write_rows(path: Path, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"kind": "jsonl", "name": path.stem, "path": str(path), **more}


def write_controller(folder: Path, version: str, **state: Any) -> None:
    """As a checkpoint holds it; None leaves a field out, as earlier releases did."""
    controller = Progress(step=9, incarnation=1).as_json() | state
    whole = {
        name: value for name, value in controller.items() if value is not None or name not in state
    }
    (folder / "checkpoints" / version).mkdir(parents=True)
    replace_json(
        folder / "checkpoints" / version / CONTROLLER,
        {"crc32": 1, "format": 2, "controller": whole},
    )


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run of the first release: no rules in its checkpoint, no prompt ids in its samples."""
    train = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(20)]
    train += [
        {"prompt": BENCHMARK.upper(), "answer": "1"},
        {"prompt": "Compute  the answer to 42.", "answer": "42"},
    ]
    bench = [
        {"prompt": f"Compute the answer to {reference}.", "answer": reference}
        for reference in EVALUATED
    ]
    tasks = {
        "dataset": write_rows(tmp_path / "train.jsonl", train, verifier="math"),
        "downstream": [
            {"dataset": write_rows(tmp_path / "bench.jsonl", bench, verifier="math")},
            {
                "dataset": write_rows(
                    tmp_path / "text.jsonl", [{"prompt": BENCHMARK, "answer": "1"}]
                )
            },
        ],
        "evaluation": {"num_prompts": 2, "seed": SEED},
    }
    folder = tmp_path / "runs" / "old"
    folder.mkdir(parents=True)
    config = {
        "run": "old",
        "folder": str(tmp_path / "runs"),
        "model": {"path": "m"},
        "tasks": tasks,
    }
    (folder / "run.json").write_text(json.dumps(config))
    (folder / "up.json").write_text(json.dumps(config))
    (folder / "format.json").write_text('{"format": 1}')
    samples = [
        sample(f"<|user|>Compute the answer to {reference}.<|end|>", f"{answer}<|im_end|>", reward)
        for reference, (answer, reward, _) in EVALUATED.items()
    ]
    samples += [
        sample(f"<|user|>{BENCHMARK}", "1", 1.0),
        sample("<|user|>Compute the answer to 42.", "so [... 9 characters ...] on", 0.0),
        sample(
            "<|user|>Compute the answer to 42.",
            r"<think>a [... 9 characters ...] b</think>\boxed{42}",
            1.0,
        ),
        sample("<|user|>What was asked is gone.", "1", 1.0),
        sample("<|user|>Compute the answer to 42.", "1", 0.0) | {"status": "timeout"},
    ]
    record = {
        "incarnation": 1,
        "step": 5,
        "dataset": "downstream:bench",
        "samples": samples,
        "at": 1.0,
    }
    (folder / SAMPLES).write_text(json.dumps(record) + "\n")
    split = load(parse_run_config(config, source="test").tasks, 1)
    used = {
        prompt.id: 2
        for prompt in split.train
        if "What is" not in prompt.text or "3 + 3" in prompt.text
    }
    write_controller(folder, "1.4", uses={}, split_rules=None, grading_rules=None)
    write_controller(folder, "1.9", uses=used, split_rules=None, grading_rules=None)
    return folder


def sample(prompt: str, completion: str, reward: float) -> dict[str, Any]:
    status = "ok" if reward else "wrong"
    counts = {"reward": reward, "status": status, "num_tokens": 3, "truncated": False}
    return {"prompt": prompt, "completion": completion, **counts}


def audited(config: RunConfig) -> RunAudit:
    place = checkpoint_place(config.run_folder, config.trainer.checkpoints)
    return audit(config.tasks, config.recipe, config.model.path, config.run_folder, place)


@pytest.mark.protections
def test_a_run_of_the_first_release_is_counted(run_folder: Path) -> None:
    answer = CliRunner().invoke(app, ["audit", str(run_folder), "--json"])
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert (report["split_rules"], report["grading_rules"]) == (1, 1)
    assert (report["newest_split_rules"], report["newest_grading_rules"]) == (
        SPLIT_RULES,
        GRADING_RULES,
    )
    assert report["contaminated_prompts"] == 2
    assert report["contaminated_uses"] == 4
    assert sorted(report["contaminated_examples"])[1].startswith("HOW MANY POSITIVE INTEGERS N")
    changed = [(old, new) for _, old, new in EVALUATED.values() if old != new]
    assert report["changed_rewards"] == len(changed) == 4
    assert report["changes"] == {"1 -> 0": 3, "0 -> 1": 1}
    assert report["graded_again"] == len(EVALUATED) + 1
    assert report["same_by_rule"] == 1, "exact"
    assert report["not_graded_again"] == {
        "whose stored text is cut": 1,
        "whose prompt is not in the data any more": 1,
    }
    assert report["stored_rewards"] == len(EVALUATED) + 4
    text = CliRunner().invoke(app, ["audit", str(run_folder)]).stdout
    assert "2 ask what a held-out or downstream prompt asks; they were used 4 times" in text
    assert "of 11 stored rewards, 4 change; 8 were graded again" in text


def test_a_run_of_this_release_has_no_contaminated_prompts_and_its_samples_name_theirs(
    run_folder: Path,
) -> None:
    config = parse_run_config(json.loads((run_folder / "run.json").read_text()), source="test")
    split = load(config.tasks)
    write_controller(run_folder, "2.12", uses={prompt.id: 1 for prompt in split.train})
    record = {"incarnation": 2, "step": 12, "dataset": "downstream:text", "at": 1.0}
    named = [
        sample("cut", "1", 1.0) | {"prompt_id": prompt.id} for prompt in split.downstream["text"]
    ]
    (run_folder / SAMPLES).write_text(json.dumps(record | {"samples": named}) + "\n")
    report = audited(config)
    assert (report.split_rules, report.grading_rules) == (SPLIT_RULES, GRADING_RULES)
    assert (report.trained_prompts, report.contaminated_prompts) == (len(split.train), 0)
    assert (report.stored_rewards, report.same_by_rule, report.not_graded_again) == (1, 1, {})


def test_without_a_checkpoint_here_all_training_prompts_count(run_folder: Path) -> None:
    settings = json.loads((run_folder / "run.json").read_text())
    (run_folder / SAMPLES).unlink()
    report = audited(
        parse_run_config(
            {**settings, "trainer": {"checkpoints": "s3://bucket/there"}}, source="test"
        )
    )
    assert (report.has_checkpoint, report.contaminated_prompts, report.stored_rewards) == (
        False,
        2,
        0,
    )
    assert "no checkpoint says which were used" in report.in_words()[0]


def test_a_resume_says_under_which_rules_the_run_is_and_keeps_its_split(run_folder: Path) -> None:
    config = parse_run_config(json.loads((run_folder / "run.json").read_text()), source="test")
    grading, split = check_run_folder(config, resume=True)
    assert grading.startswith(
        f"resumed with other rules of grading: 1 -> {GRADING_RULES}: rewards, and the curve's"
    )
    assert split.startswith(
        "the run keeps its split into training and held-out prompts, of rules 1 and not"
    )
    assert find_starting_rules(run_folder / "checkpoints").split == 1
    write_controller(run_folder, "2.12", split_rules=1)
    (split,) = check_run_folder(config, resume=True)
    assert "keeps its split" in split, "the trainer that resumed it grades by the new ones"
    write_controller(run_folder, "3.14")
    assert check_run_folder(config, resume=True) == []


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"controller": {}}', '{"controller": {"uses": {}, "split_rules": "2"}}'],
)
def test_a_checkpoint_that_cannot_be_read_is_left_to_the_trainer(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "1.5").mkdir()
    (tmp_path / "1.5" / CONTROLLER).write_text(content)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / CONTROLLER).write_text(content)
    assert checkpoint_rules(tmp_path) is None
    assert find_starting_rules(tmp_path).split == SPLIT_RULES
    assert checkpoint_rules("s3://bucket/run") is None


@pytest.mark.protections
def test_answers_of_judges_and_of_tolerant_comparisons_are_not_called_unchanged(
    run_folder: Path, tmp_path: Path
) -> None:
    data = json.loads((run_folder / "run.json").read_text())
    case = {"input": "", "output": "1.0"}
    tests = {"kind": "stdin", "cases": [case], "comparison": "float"}
    rows: dict[str, dict[str, Any]] = {
        "judged": {"prompt": "Write a poem.", "answer": "", "verifier": "judge"},
        "tolerant": {"prompt": "Print nearly one.", "answer": tests, "verifier": "code"},
    }
    data["tasks"]["downstream"] = [
        {"dataset": write_rows(tmp_path / f"{name}.jsonl", [row], verifier=row["verifier"])}
        for name, row in rows.items()
    ]
    data["tasks"]["verifiers"] = [
        {"kind": "llm-judge", "name": "judge", "url": "http://127.0.0.1:1/v1", "model": "m"}
    ]
    samples = [
        sample("Write a poem.", "Roses are red.", 0.4),
        sample("Print nearly one.", "```python\nprint(0.999999)\n```", 0.0),
    ]
    record = {
        "incarnation": 1,
        "step": 5,
        "dataset": "downstream:judged",
        "samples": samples,
        "at": 1.0,
    }
    (run_folder / SAMPLES).write_text(json.dumps(record) + "\n")
    report = audited(parse_run_config(data, source="test"))
    (reason,) = report.not_graded_again
    assert reason.startswith("of language models as judges")
    assert (report.same_by_rule, report.changes) == (0, {"0 -> 1": 1})
