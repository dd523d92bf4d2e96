"""A check before the start has prompts counted by a program that imports Transformers."""

from __future__ import annotations

from pathlib import Path

from tests.local.prompts_of_known_lengths import TEMPLATE, check_edge, check_refuses, run


def test_at_the_edge_both_agree(tmp_path: Path) -> None:
    check_edge(tmp_path, None)


def test_what_the_template_refuses_is_told_if_it_had_to_be_asked(tmp_path: Path) -> None:
    said = check_refuses(run(tmp_path, 40, template=TEMPLATE, system="Be short."))
    assert said.startswith(
        "tasks.prompt_format: the chat template refuses the prompt (no system message)"
    )
