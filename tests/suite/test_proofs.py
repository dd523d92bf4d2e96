"""A proof is due when something that it protects has changed since it passed, and only then."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.suite.changes import ROOT, tracked_files
from testkit.suite.graph import ReachGraph, is_test_file
from testkit.suite.proof_table import PROOFS
from testkit.suite.proofs import (
    Passed,
    Proof,
    proofs_that_fit,
    read_ledger,
    why_due,
    with_imports,
    write_ledger,
)
from testkit.suite.prove import _has_passed, main
from testkit.suite.selection import CORE, GROUPS, files_to_ignore, group_of_file, seconds_of_groups

PROOF = Proof("small", "a sentence", ("src",), ("tests/test_small.py",))


def run_git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()


def commit(folder: Path, file: str, text: str) -> str:
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-q", "-m", text)
    return run_git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    run_git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "src/a.py", "first")
    return tmp_path


def passed_at(commit: str, minutes: float = 1.0) -> dict[str, Passed]:
    return {"small": Passed(commit, "a machine", minutes, "2026-01-01")}


def test_a_proof_without_an_entry_is_due(repository: Path) -> None:
    assert why_due(PROOF, {}, repository) == "never passed"


def test_a_proof_is_due_when_a_file_that_its_tests_import_changes(repository: Path) -> None:
    commit(repository, "testkit/helper.py", "first")
    ledger = passed_at(commit(repository, "tests/test_small.py", "first"))
    graph = ReachGraph(
        ["testkit/helper.py", "tests/test_small.py"], {"tests/test_small.py": ["testkit/helper.py"]}
    )
    (proof,) = with_imports([PROOF], graph)
    assert why_due(proof, ledger, repository) is None
    commit(repository, "testkit/helper.py", "second")
    assert why_due(PROOF, ledger, repository) is None
    assert "testkit/helper.py changed" in str(why_due(proof, ledger, repository))


def test_a_proof_is_due_when_its_paths_or_its_tests_change(repository: Path) -> None:
    ledger = passed_at(run_git(repository, "rev-parse", "HEAD"))
    assert why_due(PROOF, ledger, repository) is None
    commit(repository, "other/b.py", "of no concern")
    assert why_due(PROOF, ledger, repository) is None
    (repository / "src" / "new.py").write_text("not committed")
    assert "src/new.py changed" in str(why_due(PROOF, ledger, repository))
    (repository / "src" / "new.py").unlink()
    commit(repository, "tests/test_small.py", "changed")
    assert "tests/test_small.py changed" in str(why_due(PROOF, ledger, repository))


def test_a_commit_that_is_not_in_the_history_makes_it_due(repository: Path) -> None:
    run_git(repository, "switch", "-q", "-c", "aside")
    aside = commit(repository, "other/c.py", "aside")
    run_git(repository, "switch", "-q", "main")
    assert "not in the history" in str(why_due(PROOF, passed_at(aside), repository))
    assert "not in the history" in str(why_due(PROOF, passed_at("0" * 40), repository))


def test_a_deleted_file_makes_it_due(repository: Path) -> None:
    ledger = passed_at(run_git(repository, "rev-parse", "HEAD"))
    (repository / "src" / "a.py").unlink()
    assert "src/a.py changed" in str(why_due(PROOF, ledger, repository))


def test_the_shortest_proofs_run_while_the_time_is_enough() -> None:
    proofs = [replace(PROOF, name=name) for name in ("long", "short", "unknown")]
    ledger = {"long": Passed("", "", 30.0, ""), "short": Passed("", "", 1.0, "")}
    names = [proof.name for proof in proofs_that_fit(proofs, ledger, 400.0, 60.0)]
    assert names == ["short", "unknown"]
    assert proofs_that_fit(proofs, ledger, -1.0, 60.0) == []


def test_the_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    assert read_ledger(path) == {}
    write_ledger(passed_at("abc"), path)
    assert read_ledger(path) == passed_at("abc")


@pytest.mark.parametrize(
    ("file", "has_passed"),
    [
        ({"tests": 3, "skipped": 1, "failed": 0}, True),
        ({"tests": 3, "skipped": 0, "failed": 1}, False),
        ({"tests": 3, "skipped": 3, "failed": 0}, False),
        (None, False),
    ],
)
def test_a_proof_has_passed_if_its_files_ran_without_failure(
    file: dict[str, float] | None, has_passed: bool
) -> None:
    assert _has_passed(PROOF, {} if file is None else {PROOF.tests[0]: file}) is has_passed


def test_the_table_names_files_that_exist_each_once() -> None:
    tests = [test for proof in PROOFS for test in proof.tests]
    assert len(tests) == len(set(tests))
    assert len({proof.name for proof in PROOFS}) == len(PROOFS)
    assert [test for test in tests if not is_test_file(test) or not (ROOT / test).is_file()] == []
    files = tracked_files()
    paths = {path for proof in PROOFS for path in proof.paths}
    assert [
        path
        for path in sorted(paths)
        if not any(file == path or file.startswith(f"{path}/") for file in files)
    ] == []


def test_contributing_names_a_proof_that_exists() -> None:
    names = re.findall(r'PROOFS="([^"]+)"', (ROOT / "CONTRIBUTING.md").read_text())
    assert names
    assert {*names} <= {proof.name for proof in PROOFS}


def test_a_change_of_a_file_that_an_example_of_contributing_changes_makes_its_proof_due() -> None:
    (proof,) = (proof for proof in PROOFS if proof.name == "contributing")
    files = set(re.findall(r"^--- a/(.+)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert files
    assert [
        file
        for file in sorted(files)
        if not any(f"{file}/".startswith(f"{path}/") for path in proof.paths)
    ] == []


def test_every_group_names_what_exists() -> None:
    assert [place for place in GROUPS if not (ROOT / place).exists()] == []


def test_the_core_leaves_all_proofs_out_and_a_named_proof_only_the_others() -> None:
    every = files_to_ignore(CORE)
    assert every == {test for proof in PROOFS for test in proof.tests}
    for proof in PROOFS:
        assert every - files_to_ignore(proof.name) == set(proof.tests)


def test_a_group_takes_as_long_as_its_files_and_an_unknown_one_is_the_middle() -> None:
    durations = {
        "tests/a/test_one.py": 1.0,
        "tests/a/test_two.py": 3.0,
        "tests/a/test_three.py": 9.0,
    }
    seconds = seconds_of_groups([*durations, "tests/a/test_new.py"], durations)
    assert seconds["tests/a/test_new.py"] == 3.0
    assert group_of_file("tests/a/test_new.py") == "tests/a/test_new.py"


def test_an_unknown_proof_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-proof"]) == 2
    assert "no-such-proof: no such proof" in capsys.readouterr().err
