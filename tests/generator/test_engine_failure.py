"""The cause of an engine that does not start is in the generator's sentence, whichever process knew
it.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import pytest

from rollcast.config.errors import EXIT_FAILED, EXIT_USER_ERROR, UserError
from rollcast.config.model import Model
from rollcast.config.services import Generator
from rollcast.generator.vllm import engine_failure, engine_process
from rollcast.generator.vllm.engine_failure import CAUSE, explained_start
from rollcast.generator.vllm.engine_warden import FOLDER_VARIABLE
from rollcast.telemetry import gpus

MISSING = "a_module_that_is_not_there"
SAID_BY_VLLM = (
    "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': "
    "1}"
)
OLD_DRIVER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
)


def needs_a_module(name: str) -> None:
    __import__(name)


def refusal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> UserError:
    """Of a generator whose engine has left its notes in `folder`. vLLM itself is not asked for its
    arguments.
    """
    monkeypatch.setattr(engine_failure, "passed_arguments", lambda settings: {})
    with pytest.raises(UserError) as raised, explained_start(Model(path="m"), Generator(), folder):
        raise RuntimeError(SAID_BY_VLLM)
    return raised.value


@pytest.mark.parametrize("broken", ["vllm.v1.engine.core", MISSING])
def test_a_module_that_the_engines_process_lacks_is_named(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real fork, whose first import fails, or its engine's; vLLM logs neither."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setitem(
        sys.modules, "vllm", pytest
    )  # takes seconds to import, and is not asked for anything
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.core", None if broken != MISSING else pytest)
    context = multiprocessing.get_context("fork")
    theirs, ours = context.Pipe(duplex=False)
    child = context.Process(target=engine_process._wait_for_order, args=(theirs, ours, None))
    child.start()
    fork = object.__new__(engine_process.EngineFork)
    fork._orders = ours
    fork.order(needs_a_module, {"name": MISSING})
    child.join(60)
    assert child.exitcode == 1
    said = str(refusal(tmp_path, monkeypatch))
    assert "ModuleNotFoundError" in said
    assert broken in said
    assert "root cause above" not in said
    assert "install what is missing" in said


@pytest.mark.parametrize(
    ("cause", "driver", "code", "sentence"),
    [
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).",
            OLD_DRIVER,
            EXIT_USER_ERROR,
            "NVIDIA driver 550.54.15 on node node-17: torch's CUDA 13.0 needs R580 or newer",
        ),
        (
            "AcceleratorError: CUDA error: uncorrectable ECC error encountered",
            OLD_DRIVER.replace("550.54.15", "580.65.06"),
            EXIT_FAILED,
            (
                "node node-17 has a GPU that cannot be used (AcceleratorError: CUDA error: "
                "uncorrectable ECC error"
            ),
        ),
    ],
)
def test_an_engine_without_its_gpu_names_driver_or_node(
    cause: str,
    driver: str,
    code: int,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / CAUSE).write_text(cause)
    (tmp_path / "version").write_text(driver)
    monkeypatch.setattr(gpus, "DRIVER_VERSION", tmp_path / "version")
    monkeypatch.setattr(engine_failure, "built_for_cuda", lambda: "13.0")
    monkeypatch.setenv(gpus.EXPECTED_GPUS, "1")
    monkeypatch.setenv(gpus.NODE_NAME, "node-17")
    error = refusal(tmp_path, monkeypatch)
    assert error.exit_code == code
    assert sentence in str(error)
