"""The last line of a judge as a score, on the scale that the line names, and what is no score."""

from __future__ import annotations

import pytest

from rollcast.tasks.remote.llm_judge import MAX_SCORE_LINE_CHARACTERS, find_score

SCORES: list[tuple[str, float | None]] = [
    ("Score: 7", 7.0),
    ("score - 7", 7.0),
    ("**Score:** 7.5", 7.5),
    ("**Score: 2.5/10**", 2.5),
    ("Score: **8**/10", 8.0),
    ("Score: 8/10", 8.0),
    ("Score: 4/5", 8.0),
    ("Score: 3.5 / 5.", 7.0),
    ("Score: 80/100", 8.0),
    ("Score: 0/5", 0.0),
    ("Score: 7 out of 10", 7.0),
    ("Score: 4 out of 5", 8.0),
    ("Score: 4 of 5 points", 8.0),
    ("Score (0-10): 7", 7.0),
    ("Score (0–10): 7", 7.0),
    ("Score [1 to 5]: 4", 8.0),
    ("Score (out of 5): 4", 8.0),
    ("Score (/5): 4", 8.0),
    ("Score (from 0 to 100): 70", 7.0),
    ("Score (0-10): 4/5", 8.0),
    ("Score: 70%", 7.0),
    ("Score: 70 percent", 7.0),
    ("Score: 7 points", 7.0),
    ("Final score: 4/5", 8.0),
    ("**Overall Score:** 4/5", 8.0),
    ("My final score is 7.", 7.0),
    ("Score: 4/5 stars", 8.0),
    ("Score: 4 stars", 4.0),
    ("Score: 8 out of 10 points.", 8.0),
    ("Score: 85%", 8.5),
    ("Score: .5", 0.5),
    ("Score: \N{MINUS SIGN}1", -1.0),
    ("Score: 4\nThe score reflects two errors.", 4.0),
    ("Score: 4\nScore-based remarks follow.", 4.0),
    ("Score: 4\nScore: eight", None),  # the last verdict counts, also if it cannot be read
    ("Score: 4\nFinal score: 8, or rather 9", None),
    ("Score: 4\n**Score (0-10):** n/a", None),
    ("Score: 4\nScore: 8" + " " * MAX_SCORE_LINE_CHARACTERS, None),
    ("Score: eight\nScore: 4", 4.0),
    ("Score: 6/5", 12.0),  # above the best: refused by its bounds
    ("Score: -1", -1.0),
    ("Score: 4/0", None),
    ("Score: 4-5", None),
    ("Score: 4/5/10", None),
    ("Score: seven", None),
    ("Score: 7, or rather 8", None),
    ("My score is somewhere near 7", None),
    ("Score: 7" + " " * MAX_SCORE_LINE_CHARACTERS, None),
]


@pytest.mark.parametrize(("line", "score"), SCORES)
def test_a_score_is_read_on_the_scale_that_its_line_names(line: str, score: float | None) -> None:
    assert find_score(f"It is so.\n{line}") == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize("part", ["score(", "(", "score of ", "score: 1 of ", "score (1-", "* "])
def test_a_hostile_line_is_read_soon(part: str) -> None:
    """The longest line that is looked at, many times."""
    line = (part * MAX_SCORE_LINE_CHARACTERS)[:MAX_SCORE_LINE_CHARACTERS]
    assert find_score(f"{line}\n" * 1_000 + "Score: 4") == 4.0
    assert find_score(f"score{line[:-5]}\n" * 200) is None
