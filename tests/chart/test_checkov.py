"""checkov on the rendered profiles, where it is installed: an environment of its own, named by
ROLLCAST_CHECKOV.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import pods, render
from tests.chart.value_sets import VALUE_SETS

CHECKOV = os.environ.get("ROLLCAST_CHECKOV")
ACCEPTED = {
    "CKV_K8S_8": "pods of Helm's tests end by themselves",
    "CKV_K8S_9": "pods of Helm's tests, and the trainer, whose Service shows it before it is ready",
    "CKV_K8S_11": "a throttled collective holds up every rank: requests, no limits of CPU",
    "CKV_K8S_15": (
        "tags are versions, digests win; pulling always costs minutes with images of gigabytes"
    ),
    "CKV_K8S_35": "every service reads its credentials from the environment",
    "CKV_K8S_38": "the autoscaler speaks to the API server; no other pod has a token",
    "CKV_K8S_40": "user 1000, as in the images; podSecurity.runAsUser sets another",
    "CKV_K8S_43": "digests are the user's: no image is published",
}
AUTOSCALER_ONLY = "CKV_K8S_38"


@pytest.mark.skipif(not CHECKOV, reason="ROLLCAST_CHECKOV names no checkov program")
@pytest.mark.timeout(600)
def test_nothing_but_what_is_accepted(tmp_path: Path) -> None:
    for name in ("cpu", "scalerl-8b", "controller", "8xh100"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(render(VALUE_SETS[name])))
    done = subprocess.run(
        [str(CHECKOV), "-d", str(tmp_path), "--framework", "kubernetes", "--compact", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    results = json.loads(done.stdout)["results"]
    assert (
        len(results["passed_checks"]) > 100 * sum(1 for _ in pods(render(VALUE_SETS["cpu"]))) / 10
    )
    found = {(check["check_id"], check["resource"]) for check in results["failed_checks"]}
    assert {check for check, _ in found} <= set(ACCEPTED), sorted(found)
    assert all("autoscaler" in resource for check, resource in found if check == AUTOSCALER_ONLY)
