"""Which tests a change reaches: imports, names of modules, and the table of what has neither."""

from __future__ import annotations

import re
from functools import cache

import pytest

from testkit.suite.graph import ReachGraph, load_graph
from testkit.suite.without_import import LINKS, SOURCE_READERS

KERNEL = "services/rollcast/scaling/law/curve.py"


@cache
def graph() -> ReachGraph:
    return load_graph()


def files_without_test(graph: ReachGraph) -> list[str]:
    """Files of services/ that no test file reaches, except those that read every source."""
    return sorted(
        file
        for file in graph.files
        if file.startswith("services/")
        and not graph.reaching_tests([file]).keys() - {*SOURCE_READERS}
    )


def test_every_file_of_services_is_reached_by_a_test() -> None:
    assert files_without_test(graph()) == []


def test_a_file_that_only_readers_of_every_source_reach_has_no_test() -> None:
    untested = "services/rollcast/untested.py"
    small = ReachGraph(
        [untested, KERNEL, *SOURCE_READERS, "tests/test_a.py"], {"tests/test_a.py": [KERNEL]}
    )
    assert set(small.reaching_tests([untested])) == set(SOURCE_READERS)
    assert files_without_test(small) == [untested]


def test_files_that_tests_import_through_others_are_followed_to_the_first_of_services() -> None:
    files = [
        "tests/a/test_a.py",
        "tests/a/conftest.py",
        "tests/conftest.py",
        "testkit/b.py",
        "testkit/c.py",
    ]
    modules = ["services/rollcast/x.py", "services/rollcast/y.py"]
    imports = {
        "tests/a/test_a.py": ["testkit/b.py"],
        "testkit/b.py": [modules[0]],
        modules[0]: [modules[1]],
        "tests/a/conftest.py": ["testkit/c.py"],
    }
    small = ReachGraph([*files, *modules], imports)
    assert small.imported_files(["tests/a/test_a.py"]) == {*files, modules[0]} - {
        "tests/conftest.py"
    }


def test_a_deleted_test_file_is_not_among_those_that_reach_a_change() -> None:
    small = ReachGraph(["tests/test_a.py"], {})
    assert small.reaching_tests(["tests/test_a.py", "tests/test_deleted.py"]) == {
        "tests/test_a.py": 0
    }


@pytest.mark.parametrize(
    ("file", "test", "most"),
    [
        (KERNEL, "tests/scaling/test_curve.py", 1),
        ("services/rollcast/recipe/losses/cispo.py", "tests/recipe/test_losses.py", 3),
        ("services/rollcast/config/losses/cispo.py", "tests/config/test_run.py", 9),
        ("services/rollcast/generator/vllm/worker.py", "tests/generator/test_exactness.py", 9),
        ("services/rollcast/tasks/sandbox/fork_server.py", "tests/tasks/test_sandbox.py", 3),
        ("services/rollcast/forecaster/page/page.js", "tests/forecaster/test_page.py", 9),
        ("services/rollcast/trainer/__main__.py", "tests/system/test_faults.py", 9),
        ("helm/rollcast/templates/trainer/job.yaml", "tests/chart/test_structure.py", 1),
        ("proto/rollcast/wire/rollout.proto", "tests/test_wire_generated.py", 1),
        ("docs/data.md", "tests/documents/test_pages.py", 1),
        ("configs/demo.yaml", "tests/config/test_run.py", 1),
    ],
)
def test_a_file_is_reached_by_the_tests_of_its_subject(file: str, test: str, most: int) -> None:
    assert file in graph().files
    assert graph().reaching_tests([file])[test] <= most


def test_a_module_is_not_reached_by_tests_of_what_does_not_use_it() -> None:
    reaching = graph().reaching_tests(["services/rollcast/cli/fit.py"])
    assert "tests/recipe/test_losses.py" not in reaching
    assert "tests/weights/test_lanes.py" not in reaching


def test_distances_count_the_files_between() -> None:
    files = ["tests/test_a.py", "testkit/b.py", "testkit/c.py"]
    small = ReachGraph(
        files, {"tests/test_a.py": ["testkit/b.py"], "testkit/b.py": ["testkit/c.py"]}
    )
    assert small.distances(["testkit/c.py"]) == {
        "testkit/c.py": 0,
        "testkit/b.py": 1,
        "tests/test_a.py": 2,
    }
    assert small.reaching_tests(["testkit/b.py"]) == {"tests/test_a.py": 1}


def test_every_pattern_of_the_table_matches_a_file() -> None:
    patterns = {pattern for link in LINKS for pattern in (*link.users, *link.used)}
    regular = {pattern: re.compile(re.escape(pattern).replace(r"\*", ".*")) for pattern in patterns}
    files = graph().files
    unmatched = [
        pattern
        for pattern, regex in regular.items()
        if not any(regex.fullmatch(file) for file in files)
    ]
    assert unmatched == []
