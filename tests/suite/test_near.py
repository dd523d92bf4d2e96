"""`make near` takes the nearest tests first, the quick ones among them,
and names what it leaves.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testkit.suite.changes import NoHistoryError, base_commit, changed_files, git
from testkit.suite.durations import load_durations
from testkit.suite.near import BUDGET_SECONDS, PROCESSES, START_SECONDS, main, select
from testkit.suite.selection import group_of_file
from testkit.suite.shared_words import changed_text, rank_by_words
from tests.conftest import file_of, pytest_collection_modifyitems

WHOLE_BUDGET_SECONDS = (BUDGET_SECONDS - START_SECONDS) * PROCESSES


def run_git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, timeout=60
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits on main."""
    run_git(tmp_path, "init", "-q", "-b", "main")
    for text in ("first", "second"):
        (tmp_path / "file").write_text(text)
        run_git(tmp_path, "add", ".")
        run_git(tmp_path, "commit", "-q", "-m", text)
    return tmp_path


def test_near_files_come_first_and_quick_ones_among_them() -> None:
    distances = {"tests/b/test_far.py": 3, "tests/a/test_slow.py": 1, "tests/a/test_quick.py": 1}
    durations = {
        "tests/b/test_far.py": 1.0,
        "tests/a/test_slow.py": 20.0,
        "tests/a/test_quick.py": 1.0,
    }
    assert select(distances, durations, frozenset({"a"}), dict.fromkeys(distances, 0)).files == (
        "tests/a/test_quick.py",
        "tests/a/test_slow.py",
        "tests/b/test_far.py",
    )


def test_files_of_the_changed_room_come_before_others_of_the_same_distance() -> None:
    distances = {"tests/a/test_one.py": 1, "tests/b/test_two.py": 1}
    assert select(distances, {}, frozenset({"b"}), dict.fromkeys(distances, 0)).files == (
        "tests/b/test_two.py",
        "tests/a/test_one.py",
    )


def test_a_slow_file_that_speaks_of_the_change_comes_before_quick_ones_that_do_not() -> None:
    texts = {
        f"tests/a/test_{index}.py": f"def test_other_{index}(): open(path)" for index in range(20)
    }
    texts["tests/a/test_export.py"] = (
        "def test_an_exported_adapter_has_its_tokenizer(): export_adapter(path)"
    )
    ranks = rank_by_words("-    export_adapter(path)\n+    export_adapter(path, tokenizer)", texts)
    assert ranks["tests/a/test_export.py"] == 0
    durations = dict.fromkeys(texts, 10.0) | {"tests/a/test_export.py": 0.9 * WHOLE_BUDGET_SECONDS}
    selection = select(dict.fromkeys(texts, 1), durations, frozenset({"a"}), ranks)
    assert "tests/a/test_export.py" in selection.files


def test_the_words_of_a_change_are_those_of_its_lines_and_file_names(repository: Path) -> None:
    (repository / "file.py").write_text("old_word\n")
    run_git(repository, "add", ".")
    run_git(repository, "commit", "-q", "-m", "third")
    (repository / "file.py").write_text("new_word\n")
    assert changed_text("HEAD", ["file.py"], repository) == "file.py\nold_word\nnew_word"


def test_what_does_not_fit_is_left_and_what_is_shorter_still_runs() -> None:
    durations = {
        "tests/test_a.py": 0.9 * WHOLE_BUDGET_SECONDS,
        "tests/test_b.py": 0.5 * WHOLE_BUDGET_SECONDS,
    }
    durations["tests/test_c.py"] = 0.05 * WHOLE_BUDGET_SECONDS
    distances = {"tests/test_a.py": 1, "tests/test_b.py": 2, "tests/test_c.py": 3}
    selection = select(distances, durations, frozenset(), distances)
    assert selection.files == ("tests/test_a.py", "tests/test_c.py")
    assert selection.later_files == ("tests/test_b.py",)


def test_the_base_is_the_merge_base_or_the_commit_before(repository: Path) -> None:
    commit, rule = base_commit(repository)
    assert rule == "HEAD~1"
    assert changed_files(commit, root=repository) == ["file"]
    run_git(repository, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    assert base_commit(repository) == (commit, "the merge base of origin/main")
    run_git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert base_commit(repository) == (commit, "HEAD~1")
    (repository / "new").write_text("not committed")
    head, rule = base_commit(repository)
    assert (head != commit, rule) == (True, "the merge base of origin/main")
    assert changed_files(head, root=repository) == ["new"]


def test_without_a_remote_a_branch_is_compared_with_main(repository: Path) -> None:
    (main_commit,) = git("rev-parse", "HEAD", root=repository).split()
    run_git(repository, "switch", "-q", "-c", "feature")
    assert base_commit(repository)[1] == "HEAD~1"  # nothing has changed since main
    for name in ("one", "two"):
        (repository / name).write_text(name)
        run_git(repository, "add", ".")
        run_git(repository, "commit", "-q", "-m", name)
    assert base_commit(repository) == (main_commit, "the merge base of main")
    assert changed_files(main_commit, root=repository) == ["one", "two"]
    run_git(repository, "switch", "-q", "--detach")
    assert base_commit(repository)[1] == "HEAD~1"
    run_git(repository, "switch", "-q", "feature")
    run_git(repository, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    assert base_commit(repository)[1] == "the merge base of origin/main"


def test_an_unknown_commit_is_one_sentence(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NoHistoryError):
        changed_files("0000000", root=repository)
    assert main(["--since", "no-such-commit"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("keeps_order", [True, False])
def test_near_keeps_its_order_and_other_calls_begin_with_what_takes_longest(
    keeps_order: bool,
) -> None:
    durations = load_durations()
    files = sorted(
        (file for file in durations if group_of_file(file) == file),
        key=lambda file: (durations[file], file),
    )
    items: list[Any] = [SimpleNamespace(nodeid=f"{file}::test_some") for file in files]
    config: Any = SimpleNamespace(workerinput={}, getoption={"keep_order": keeps_order}.get)
    pytest_collection_modifyitems(config, items)
    seconds = [durations[file] for file in files]
    assert [durations[file_of(item)] for item in items] == (
        seconds if keeps_order else seconds[::-1]
    )
