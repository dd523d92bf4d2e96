"""Renderings that are kept: shared by processes, lost with a change of the chart, and nobody's to
change for others.
"""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import pytest

from tests.chart.render_cache import RenderCache, files_digest
from tests.chart.rendering import CHART, CPU, one, render


def refused() -> str:
    raise AssertionError("rendered again")


def test_another_cache_of_the_same_version_has_what_the_first_one_rendered(tmp_path: Path) -> None:
    assert RenderCache("1", tmp_path).get("a", lambda: "Grüße") == "Grüße"
    assert RenderCache("1", tmp_path).get("a", refused) == "Grüße"
    assert RenderCache("1", tmp_path).get("b", lambda: "other") == "other"


def test_another_version_has_nothing_of_the_first_one_and_deletes_it(tmp_path: Path) -> None:
    first = RenderCache("1", tmp_path)
    first.get("a", lambda: "old")
    assert RenderCache("2", tmp_path).get("a", lambda: "new") == "new"
    assert len(list(tmp_path.iterdir())) == 1
    assert first.get("a", lambda: "again") == "again", (
        "a run that goes on meanwhile renders for itself"
    )


def test_a_rendering_that_fails_is_not_kept(tmp_path: Path) -> None:
    cache = RenderCache("1", tmp_path)
    with pytest.raises(AssertionError):
        cache.get("a", refused)
    assert cache.get("a", lambda: "right") == "right"


def _write(folder: Path, number: int) -> None:
    for key in range(50):
        text = RenderCache("1", folder).get(f"{key}", lambda: f"{number}" * 100_000)
        assert len(set(text)) == 1, "half of one and half of another"
        assert len(text) == 100_000


def test_processes_that_render_the_same_read_whole_files(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]


def test_a_changed_file_of_a_chart_has_another_digest(tmp_path: Path) -> None:
    """And one that is added, renamed or taken away."""
    digests = [files_digest(CHART)]
    for number, change in enumerate(("write", "add", "rename", "delete")):
        copied = shutil.copytree(CHART, tmp_path / str(number))
        template = copied / "templates" / "check.yaml"
        if change == "write":
            template.write_text(template.read_text() + "\n")
        elif change == "add":
            (copied / "templates" / "more.yaml").touch()
        elif change == "rename":
            template.rename(template.with_name("other.yaml"))
        else:
            template.unlink()
        digests.append(files_digest(copied))
    assert len(set(digests)) == 5
    assert files_digest(shutil.copytree(CHART, tmp_path / "same")) == digests[0]


def test_who_changes_rendered_objects_changes_nobody_elses() -> None:
    one(render(CPU), "Deployment", "-generator")["spec"]["replicas"] = 77
    assert one(render(CPU), "Deployment", "-generator")["spec"]["replicas"] == 1
