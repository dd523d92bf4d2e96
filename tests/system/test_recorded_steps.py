"""Steps of real runs are found again: single answers, episodes, adapters, experts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.recorded.recorded_index import find_step
from rollcast.recorded.step_bundle import load_step
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.replay.program import replay
from testkit.forked_programs import ForkedPrograms
from testkit.system.recorded_system import KINDS, Kind, record_run

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(600)]
STEPS = 6


@pytest.mark.parametrize(
    ("kind", "transport", "trainer_ranks"),
    [*((kind, "auto", 1) for kind in KINDS), ("answers", "store", 2), ("llama", "store", 1)],
)
def test_steps_of_a_real_run_are_found_again(
    tmp_path: Path,
    programs: ForkedPrograms,
    ranks: Ranks,
    kind: Kind,
    transport: str,
    trainer_ranks: int,
) -> None:
    """Over process groups, and over a store that generators pull from."""
    system = record_run(
        kind,
        tmp_path,
        steps=STEPS,
        ranks=trainer_ranks,
        programs=programs,
        transport=transport,
    )
    assert (system.run_folder / "weights").exists() == (transport == "store")
    assert [line["step"] for line in system.steps] == list(range(1, STEPS + 1))
    ages: set[str] = set()
    for line in system.steps:
        ages |= line["staleness_tokens"].keys()
        bundle = load_step(find_step(system.run_folder, str(line["step"])))
        report = replay(bundle, ranks)
        assert report.disagreeing == (), report.in_words()
        for name in ("loss", "gradient norm"):
            pair = report.figures[name]
            assert pair["replayed"] == pytest.approx(pair["recorded"], rel=1e-6), name
        gaps = [item.largest for item in report.comparisons if "log-probs" in item.check]
        assert len(gaps) == 2
        assert all(gap is not None and gap < 1e-4 for gap in gaps), gaps
    assert len(ages) > 1, "tokens of several versions"
