"""What Kubernetes accepts, by the schemas of its API; each file of a version's schemas is read
once.
"""

from __future__ import annotations

import functools
import sys

import pytest

from tests.chart.rendering import Object

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="kubernetes-validate is not installed"
)
ValidationError = kubernetes_validate.ValidationError
NEWEST = "1.37"
_CODE = sys.modules[kubernetes_validate.validate.__module__]
_schema_contents = functools.cache(_CODE.schema_contents)


def check(item: Object, version: str) -> None:
    """Raises ValidationError, also of a field that this version does not know."""
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # else megabytes of definitions are read again for each object
        patch.setattr(_CODE, "schema_contents", _schema_contents)
        kubernetes_validate.validate(item, version, strict=True)
