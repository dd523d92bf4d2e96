"""The reason that a log ends with: of real tracebacks, and of what vLLM 0.32 wrote when its engine
died.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from rollcast.telemetry.failure_reason import deepest_error, failure_reason

OF_VLLM = """\
Triton is installed, but doesn't include CPU backend. Disabling Triton.
(EngineCore pid=9751) ERROR 11-26 07:39:41 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=9751) ERROR 11-26 07:39:41 [core.py:1512] Traceback (most recent call last):
(EngineCore pid=9751) ERROR 11-26 07:39:41 [core.py:1512]   File "/x/torch/_ops.py", line 1279, in __call__
(EngineCore pid=9751) ERROR 11-26 07:39:41 [core.py:1512]     return self._op(*args, **kwargs)
(EngineCore pid=9751) ERROR 11-26 07:39:41 [core.py:1512]            ^^^^^^^^^^^^^^^^^^^^^^^^^
(EngineCore pid=9751) ERROR 11-26 07:39:41 [core.py:1512] RuntimeError: Unsupported configuration: head_dim=16 isa=2
(MainProcess pid=9539) ERROR 11-26 07:39:41 [async_llm.py:906] AsyncLLM output_handler failed.
(MainProcess pid=9539) ERROR 11-26 07:39:41 [async_llm.py:906] Traceback (most recent call last):
(MainProcess pid=9539) ERROR 11-26 07:39:41 [async_llm.py:906]   File "/x/async_llm.py", line 849, in output_handler
(MainProcess pid=9539) ERROR 11-26 07:39:41 [async_llm.py:906]     outputs = await engine_core.get_output_async()
(MainProcess pid=9539) ERROR 11-26 07:39:41 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
"""  # noqa: E501
LOCATED = (
    "2026-11-26T07:39:41.123456Z [error    ] generator ends  reason=left the weight group "
    "service=generator-0\n"
)


def traceback_of(program: str) -> str:
    """As a real Python prints it."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    ).stderr


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise ValueError('no such thing')", "ValueError: no such thing"),
        ("raise ValueError", "ValueError"),
        (("import json; "
            "json.loads('{')"), ("JSONDecodeError: Expecting property name enclosed in double "
                "quotes: "
                "line 1")),
        (("try:\n open('/nowhere/x')\nexcept OSError as e:\n raise RuntimeError('cannot load') "
            "from e"),
         "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/x'"),
        (("try:\n raise OSError(28, 'No space left on device')\nexcept OSError:\n raise "
            "RuntimeError('cannot close')"),
         "OSError: [Errno 28] No space left on device"),
        ("try:\n {}['gpt5']\nexcept KeyError:\n raise ValueError('unknown architecture gpt5')",
         "ValueError: unknown architecture gpt5"),
        (("raise ValueError('1 validation error for ModelConfig\\n  Value error, Mamba is not "
            "supported')"),
         "ValueError: 1 validation error for ModelConfig Value error, Mamba is not supported"),
    ],
)  # fmt: skip
def test_the_deepest_error_of_a_traceback(program: str, reason: str) -> None:
    found = failure_reason(traceback_of(program))
    assert found is not None
    assert found.startswith(reason)
    assert found.count("\n") == 0


def test_a_sentence_between_two_tracebacks_belongs_to_neither() -> None:
    """As in the log of two ranks that fail at once."""
    log = (
        "Traceback (most recent call last):\n"
        "KeyError: 'k0'\n"
        "error: sentence 1\n"
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        "ValueError: x4\n"
    )
    assert failure_reason(log) == "ValueError: x4"


def test_of_an_engine_and_its_front_end_the_one_that_knows_why() -> None:
    assert failure_reason(OF_VLLM) == "RuntimeError: Unsupported configuration: head_dim=16 isa=2"
    assert failure_reason(OF_VLLM + traceback_of("raise KeyError('x')")) == "KeyError: 'x'", (
        "what came last counts"
    )


def test_what_names_no_reason_is_better_than_nothing() -> None:
    last = OF_VLLM[OF_VLLM.index("(MainProcess") :]
    assert str(failure_reason(last)).startswith("EngineDeadError: EngineCore encountered an issue")


def test_sentences_and_lines_of_the_log_count_as_a_traceback_does_and_the_last_is_taken() -> None:
    failed = traceback_of("raise ValueError('tried, and went on')")
    assert failure_reason(failed + "error: folder = x: the disk is full; free space\n") == (
        "folder = x: the disk is full; free space"
    )
    found = failure_reason(failed + "all is well\n" + LOCATED)
    assert found == "generator ends  reason=left the weight group service=generator-0"
    assert failure_reason(LOCATED + failed) == "ValueError: tried, and went on"


def test_a_request_that_was_open_at_the_end_is_no_reason() -> None:
    cancelled = traceback_of(
        "import asyncio; raise asyncio.CancelledError('Task cancelled, timeout exceeded')"
    )
    found = failure_reason(LOCATED + 3 * cancelled)
    assert found == "generator ends  reason=left the weight group service=generator-0"


@pytest.mark.parametrize(
    "log", ["", "\n\n", "nothing went wrong\n", "Traceback (most recent call last):\n  File"]
)
def test_a_log_without_a_reason_names_none(log: str) -> None:
    assert failure_reason(log) is None


def test_a_long_error_is_cut() -> None:
    found = failure_reason(traceback_of("raise ValueError('x' * 100_000)"))
    assert found is not None
    assert len(found) < 1_000


def fail() -> None:
    try:
        raise OSError("a wire is loose")
    except OSError as cause:
        raise RuntimeError("it does not answer") from cause


def test_of_an_error_in_hand_the_one_that_caused_it() -> None:
    with pytest.raises(RuntimeError) as failed:
        fail()
    assert deepest_error(failed.value) == "OSError: a wire is loose"
