"""The installed vLLM without an engine: its import in an engine's process, and the arguments that
it knows.
"""

from __future__ import annotations

import ast
import dataclasses
import gc
import importlib.util
import runpy
from pathlib import Path

import pytest

from rollcast.config.engine_arguments import EngineArguments, refused_arguments
from rollcast.config.run import parse_run_config
from rollcast.generator.vllm import engine_start, protocol

pytestmark = pytest.mark.engine

SMALLEST = {"run": "test", "model": {"path": "model"}}


def test_an_engines_child_collects_garbage_from_when_it_has_imported_vllm() -> None:
    """What Python runs in it first, and what vLLM runs in it first."""
    from rollcast.generator.vllm.plugin import register

    try:
        runpy.run_module("rollcast.generator.__main__", run_name="__mp_main__")
        assert not gc.isenabled()
        register()
        assert gc.isenabled()
    finally:
        gc.enable()


def test_other_packages_may_ask_whether_torchvision_is_there() -> None:
    """Before and after vLLM has imported the file of a model that takes images."""
    from vllm.model_executor.models.registry import ModelRegistry

    from rollcast.generator.vllm.plugin import register

    before = importlib.util.find_spec("torchvision")
    register()
    assert importlib.util.find_spec("torchvision") == before
    assert ModelRegistry.models["Qwen3_5ForConditionalGeneration"].load_model_cls() is not None
    assert importlib.util.find_spec("torchvision") == before


def test_every_argument_that_is_spoken_of_is_one_of_vllms() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    theirs = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    refused = {name for table in refused_arguments().values() for name in table}
    assert set(EngineArguments.model_fields) | refused <= theirs
    assert not set(EngineArguments.model_fields) & refused
    ours = set(engine_start.engine_arguments(parse_run_config(SMALLEST, source="test"), "a"))
    assert not ours & set(EngineArguments.model_fields) - {"enforce_eager"}, (
        "one would be set twice"
    )


def test_every_class_of_the_apis_that_is_asked_for_is_there() -> None:
    """They are found by name when they are asked for, where no type checker looks."""
    asked = set()
    for page in (Path(protocol.__file__).parents[1]).rglob("*.py"):
        tree = ast.parse(page.read_text())
        aliases = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "rollcast.generator.vllm"
            for alias in node.names
            if alias.name == "protocol"
        }
        asked |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in aliases
        }
    assert len(asked) >= 10
    for name in asked:
        assert getattr(protocol, name) is not None
