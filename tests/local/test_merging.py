"""What a merged adapter's rounding to the base's dtype loses, and a merge that loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from rollcast.cli.model import app

UPDATE = 1e-3
LOST = {
    # Absolute value of the base's weights -> whether an update of 1e-3 is lost: the distance of
    # bfloat16's numbers is 2^-7 of the largest power of two below
    0.001: False,
    0.01: False,
    0.1: False,
    0.2: False,
    0.25: False,
    0.375: False,
    0.5: True,
    0.75: True,
    1.0: True,
    4.0: True,
}


def write_merge_inputs(folder: Path, dtype: torch.dtype) -> Path:
    """A base of one weight, a row for each entry of LOST, and an adapter that adds UPDATE to each
    number.
    """
    base = folder / "base"
    base.mkdir()
    (base / "config.json").write_text(
        '{"torch_dtype": "bfloat16", "text_config": {"dtype": "bfloat16"}}'
    )
    rows = torch.tensor(list(LOST), dtype=torch.float32)[:, None].repeat(1, 8)
    save_file(
        {"layer.weight": rows.to(dtype), "norm.weight": torch.ones(8, dtype=dtype)},
        base / "model.safetensors",
    )
    (base / "model.safetensors.index.json").write_text(
        '{"metadata": {"total_size": 1}, "weight_map": {}}'
    )
    adapter = folder / "adapter"
    adapter.mkdir()
    parts = {"lora_A": torch.ones(1, 8), "lora_B": torch.full((len(LOST), 1), UPDATE)}
    save_file(
        {f"base_model.model.layer.{name}.weight": value for name, value in parts.items()},
        adapter / "adapter_model.safetensors",
    )
    settings = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "base_model_name_or_path": str(base)}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    return adapter


def test_a_merge_says_which_share_of_its_updates_is_lost(tmp_path: Path) -> None:
    adapter = write_merge_inputs(tmp_path, torch.bfloat16)
    answer = CliRunner().invoke(app, ["merge", str(adapter), "--folder", str(tmp_path / "merged")])
    assert answer.exit_code == 0
    assert "1 weights of" in answer.output
    assert "written in bfloat16; 40.00% of the 80 updates are lost" in answer.output
    assert "--dtype float32 keeps them" in answer.output
    before = load_file(tmp_path / "base" / "model.safetensors")["layer.weight"]
    after = load_file(tmp_path / "merged" / "model.safetensors")["layer.weight"]
    assert after.dtype == torch.bfloat16
    for row, is_lost in enumerate(LOST.values()):
        assert torch.equal(before[row], after[row]) is is_lost


def test_a_merge_in_float32_loses_nothing_and_its_files_say_so(tmp_path: Path) -> None:
    adapter = write_merge_inputs(tmp_path, torch.bfloat16)
    folder = tmp_path / "merged"
    answer = CliRunner().invoke(
        app, ["merge", str(adapter), "--folder", str(folder), "--dtype", "float32"]
    )
    assert answer.exit_code == 0
    assert "written in float32; no update is lost" in answer.output
    before = load_file(tmp_path / "base" / "model.safetensors")["layer.weight"].float()
    found = load_file(folder / "model.safetensors")
    torch.testing.assert_close(
        found["layer.weight"] - before, torch.full_like(before, UPDATE), rtol=0, atol=3e-7
    )
    assert found["norm.weight"].dtype == torch.float32
    config = json.loads((folder / "config.json").read_text())
    assert (config["torch_dtype"], config["text_config"]["dtype"]) == ("float32", "float32")
    assert "total_size" not in (folder / "model.safetensors.index.json").read_text()
