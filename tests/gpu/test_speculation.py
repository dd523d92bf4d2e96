"""The part that compares drafts with none: real engines on a CPU, tiny."""

from __future__ import annotations

import pytest

from testkit.gpu import speculation
from testkit.uncompiled import UNCOMPILED


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")
def test_drafts_leave_tokens_and_log_probs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UNCOMPILED, "1")
    figures = speculation.measure("speculation", is_small=True)
    assert [row["drafts"] for row in figures["rows"]] == [None, "ngram", "draft_model"]
    assert len(figures["targets"]) == 4
    assert all(figures["targets"].values()), figures


def test_wrong_log_probs_and_unlikely_tokens_miss_a_target() -> None:
    plain = {
        "logprob_error_max": 1e-6,
        "logprob_mean": -2.0,
        "logprob_mean_standard_error": 0.1,
        "accepted_tokens": 0,
        "versions_of_a_rollout": 2,
    }
    drafted = plain | {"accepted_tokens": 5}
    assert all(speculation.targets([plain, drafted]).values())
    for wrong in (
        {"logprob_error_max": 0.1},
        {"logprob_error_max": float("nan")},
        {"logprob_mean": -3.0},
        {"accepted_tokens": 0},
        {"versions_of_a_rollout": 1},
    ):
        assert list(speculation.targets([plain, drafted | wrong]).values()).count(False) == 1
