"""What differs between architectures, in every one that can be trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.tiny_model import ARCHITECTURES, make_architecture
from tests.trainer.architecture_checks import (  # noqa: F401  (tests of this module too)
    test_an_export_is_stored_as_models_of_its_kind_are,
    test_every_decoder_layer_is_an_fsdp_unit_of_its_own,
    test_gradients_equal_the_models_own_with_and_without_activation_checkpointing,
    test_logprobs_equal_the_models_own,
)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    make_architecture(folder, request.param)
    return folder
