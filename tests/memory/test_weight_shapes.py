"""Every source of weight shapes gives the ones that Transformers makes: files, the hub, config.json
itself.

test_other_programs.py has Transformers make them in a process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import transformers

from rollcast.memory import hub, weight_shapes
from rollcast.memory.architecture import UncountedModelError
from rollcast.memory.safetensors_headers import INDEX, WHOLE
from rollcast.memory.weight_shapes import WEIGHTS, find_model_shape, same_layers_together
from testkit.model_shapes import make_header, make_shape
from testkit.published_models import BILLIONS, LLAMA4_SCOUT, MIXTRAL_8X7B, QWEN3_8B, QWEN3_30B_A3B
from tests.memory.architectures import SETTINGS, make_config

BYTES_AFTER_HEADER = 64 << 20


@pytest.fixture
def no_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an installation without extras."""
    monkeypatch.setattr(weight_shapes, "find_spec", lambda name: None)


@pytest.mark.usefixtures("no_transformers")
@pytest.mark.parametrize("split", ["5GB", "40KB"])
@pytest.mark.parametrize("name", SETTINGS)
def test_headers_of_what_transformers_saves_give_what_it_makes(
    name: str, split: str, tmp_path: Path
) -> None:
    transformers.AutoModelForCausalLM.from_config(make_config(name)).save_pretrained(
        tmp_path, max_shard_size=split
    )
    assert (tmp_path / INDEX).exists() is (split == "40KB")
    written = json.loads((tmp_path / "config.json").read_text())
    assert find_model_shape(written, folder=tmp_path) == make_shape(written)


@pytest.mark.usefixtures("no_transformers")
def test_experts_and_text_models_as_they_are_published(tmp_path: Path) -> None:
    """Names by the published files: Mixtral calls its products w1, w2, w3; Llama 4 has a vision
    model too.
    """
    shape = make_shape(MIXTRAL_8X7B)
    stored = {name: sizes for name, sizes in shape.weights() if ".mlp." not in name}
    for layer in range(32):
        place = f"model.layers.{layer}.block_sparse_moe"
        stored[f"{place}.gate.weight"] = (8, 4096)
        for expert in range(8):
            stored |= {
                f"{place}.experts.{expert}.{name}.weight": (14_336, 4096) for name in ("w1", "w3")
            }
            stored[f"{place}.experts.{expert}.w2.weight"] = (4096, 14_336)
        stored[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = (64,)
    (tmp_path / WHOLE).write_bytes(make_header(stored))
    assert find_model_shape(MIXTRAL_8X7B, folder=tmp_path) == shape
    shape = make_shape(LLAMA4_SCOUT)
    parts = {f"language_model.{name}": sizes for name, sizes in shape.weights()}
    (tmp_path / WHOLE).write_bytes(make_header(parts | {"vision_model.class_embedding": (1408,)}))
    assert find_model_shape(LLAMA4_SCOUT, folder=tmp_path) == shape


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does: a redirect to storage, which serves ranges."""

    files: dict[str, bytes]
    asked: list[tuple[str, str | None, str | None]]
    sent = 0

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Range"], self.headers["Authorization"]))
        place, _, name = self.path.rpartition("/")
        if name not in self.files:
            self.send_error(404)
        elif place != "/storage":
            self.send_response(302)
            self.send_header("Location", f"/storage/{name}")
            self.end_headers()
        else:
            self.send_response(206)
            self.end_headers()
            self._send(self.files[name])

    def _send(self, start: bytes) -> None:
        try:
            self.wfile.write(start)
            while type(self).sent < BYTES_AFTER_HEADER:
                type(self).sent += self.wfile.write(bytes(1 << 16))
        except OSError:  # the client has read enough
            return

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    Hub.files, Hub.asked, Hub.sent = {}, [], 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "secret")
    yield Hub
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("no_transformers")
def test_the_hub_is_asked_for_headers_alone(served: type[Hub]) -> None:
    shape = make_shape(QWEN3_30B_A3B)
    weights = list(shape.weights())
    halves = {"a.safetensors": dict(weights[:300]), "b.safetensors": dict(weights[300:])}
    index = {"weight_map": {name: file for file, half in halves.items() for name in half}}
    served.files = {file: make_header(half) for file, half in halves.items()}
    served.files[INDEX] = json.dumps(index).encode().ljust(1 << 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served, "sent", BYTES_AFTER_HEADER)  # nothing after the index
        assert find_model_shape(QWEN3_30B_A3B, on_hub="Qwen/moe") == shape
    place = "/Qwen/moe/resolve/main"
    assert [path for path, *_ in served.asked if path.startswith(place)] == [
        f"{place}/{name}" for name in (WHOLE, INDEX, *halves)
    ]
    assert {(span, token) for _, span, token in served.asked} == {
        ("bytes=0-33554431", "Bearer secret")
    }


@pytest.mark.usefixtures("no_transformers")
def test_no_more_of_a_file_is_read_than_its_header(served: type[Hub]) -> None:
    served.files = {WHOLE: make_header(dict(make_shape(QWEN3_8B).weights()))}
    assert find_model_shape(QWEN3_8B, on_hub="Qwen/Qwen3-8B") == make_shape(QWEN3_8B)
    assert served.sent < BYTES_AFTER_HEADER / 2


@pytest.mark.parametrize(
    "start", [b"<html>", (1 << 40).to_bytes(8, "little"), (2).to_bytes(8, "little") + b"[]", b""]
)
def test_what_is_no_header_is_not_read(start: bytes, tmp_path: Path, served: type[Hub]) -> None:
    (tmp_path / WHOLE).write_bytes(start)
    served.files, served.sent = {WHOLE: start}, BYTES_AFTER_HEADER
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_shapes, "find_spec", lambda name: None)
        with pytest.raises(UncountedModelError, match="without Transformers"):
            find_model_shape(QWEN3_8B, folder=tmp_path, on_hub="Qwen/Qwen3-8B")


@pytest.mark.usefixtures("no_transformers")
def test_a_hub_that_is_slow_is_not_waited_for(
    served: type[Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "ALL_FILES_SECONDS", 0.0)
    served.files = {WHOLE: make_header(dict(make_shape(QWEN3_8B).weights()))}
    with pytest.raises(UncountedModelError):
        find_model_shape(QWEN3_8B, on_hub="Qwen/Qwen3-8B")


@pytest.mark.usefixtures("no_transformers")
@pytest.mark.parametrize("config", [config for config, _ in BILLIONS.values()], ids=BILLIONS)
def test_a_config_may_hold_the_shapes_itself(config: dict[str, Any]) -> None:
    written = json.loads(json.dumps(same_layers_together(make_shape(config))))
    assert find_model_shape(config | {WEIGHTS: written}) == make_shape(config)


@pytest.mark.parametrize("sizes", [3, [], ["4096"], [-1], None])
def test_what_is_no_shape_is_one_sentence(sizes: Any) -> None:
    with pytest.raises(
        UncountedModelError, match=r"weights.lm_head.weight = .* is not a shape; copy it"
    ):
        find_model_shape(QWEN3_8B | {WEIGHTS: {"lm_head.weight": sizes or None}})


@pytest.mark.usefixtures("no_transformers")
def test_a_config_alone_without_transformers_is_one_sentence_with_the_remedy() -> None:
    with pytest.raises(
        UncountedModelError,
        match=r"without Transformers; run pip install 'rollcast\[trainer\]', or give",
    ):
        find_model_shape(QWEN3_8B)
