"""`helm upgrade --reuse-values` from a release of every earlier chart; test_earlier_values.py has
the messages.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.earlier_charts import NUMBERS, earlier_defaults, upgraded, without_secrets
from tests.chart.rendering import CPU, PROFILES, Object, merged, pods, profile, render


@pytest.mark.parametrize("name", ["", *PROFILES])
@pytest.mark.parametrize("before", NUMBERS)
def test_an_upgrade_renders_what_an_install_would(before: str, name: str, tmp_path: Path) -> None:
    reused = render({}, path=upgraded(earlier_defaults(before), profile(name), tmp_path))
    assert without_secrets(reused) == without_secrets(render(profile(name)))


@pytest.mark.parametrize(
    "change",
    [
        {"generator": {"replicas": 3}},
        {"autoscaler": {"mode": "keda", "maxReplicas": 6}},
        {"grader": {"enabled": True}},
        {"trainer": {"controller": "jobset", "suspend": True}},
        {
            "monitoring": {
                "enabled": True,
                "rules": {"enabled": True},
                "dashboards": {"enabled": True},
            }
        },
        {"hooks": {"resources": {"limits": {"cpu": 1}}}},
    ],
    ids=lambda change: str(next(iter(change))),
)
@pytest.mark.parametrize("before", NUMBERS)
def test_every_documented_upgrade_works_from_every_earlier_chart(
    before: str, change: Object, tmp_path: Path
) -> None:
    reused = render(change, path=upgraded(earlier_defaults(before), CPU, tmp_path))
    installed = render(merged(CPU, change))
    assert without_secrets(reused) == without_secrets(installed)


@pytest.mark.parametrize("before", NUMBERS)
def test_what_a_user_took_away_stays_away(before: str, tmp_path: Path) -> None:
    """As OpenShift wants it: an id of null.

    Helm drops such a key, which is not one that came since.
    """
    values = merged(earlier_defaults(before), CPU)
    for key in ("runAsUser", "runAsGroup", "fsGroup"):
        del values["podSecurity"][key]
    for pod in pods(render({}, path=upgraded(values, {}, tmp_path))):
        if pod.role != "redis":
            assert "runAsUser" not in pod.spec["securityContext"]
