"""A prompt with a token that the model has no embedding for fails its task,
and the engine goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import transformers

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.generator.vllm.engine_request import BadRequestError, EngineRequest
from rollcast.rollouts.records import Sampling
from testkit.tiny_model import VOCABULARY, make_tiny_model
from tests.generator.conftest import Versions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def run_config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Of a model whose tokenizer knows more tokens than it has rows."""
    folder = tmp_path_factory.mktemp("generator")
    model = folder / "model"
    make_tiny_model(model)
    _add_tokens(model, 20)
    return parse_run_config(
        {
            "run": "test",
            "folder": str(folder / "runs"),
            "model": {"path": str(model), "dtype": "float32", "max_length": 512},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 128,
                "max_completion_tokens": 384,
            },
            "generator": {"slots": 32, "block_size": 32},
        },
        source="test",
    )


def _add_tokens(model: Path, count: int) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [f"<tool{number}>" for number in range(count)]}
    )
    tokenizer.save_pretrained(model)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def versions(
    run_config: RunConfig, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Versions]:
    started = await Versions.start(run_config, tmp_path_factory.mktemp("versions"))
    yield started
    started.engine.shutdown()


async def test_a_token_without_an_embedding_is_refused_and_the_engine_goes_on(
    versions: Versions,
) -> None:
    await versions.apply(0)

    def request(*token_ids: int) -> EngineRequest:
        return EngineRequest(
            list(token_ids), max_tokens=4, sampling=Sampling(), seed=1, salt=lambda version: "s"
        )

    for token_id in (VOCABULARY, VOCABULARY + 5):
        with pytest.raises(
            BadRequestError,
            match=f"3 prompt tokens: the model has no embedding for token {token_id}",
        ):
            await versions.engine.sample(request(3, token_id, 3))
    sampled = await versions.engine.sample(request(3, VOCABULARY - 1, 3))
    assert len(sampled.token_ids) == 4
    assert not versions.engine.failed
