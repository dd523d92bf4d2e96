"""The chat format of a model, tried in a process of its own: its template may never end, or take
all memory.

    python -m rollcast.chat.check < {"model": .., "prompt_format": .., "needs_tools": ..}

prints why it cannot be used.
"""

import asyncio
import json
import resource
import sys
from contextlib import suppress
from typing import cast

from rollcast.chat.make import make_renderer
from rollcast.chat.template import ChatTokenizer
from rollcast.config.errors import EXIT_USER_ERROR, UserError
from rollcast.config.model import Model
from rollcast.config.tasks import PromptFormat
from rollcast.processes.limits import limit
from rollcast.tasks.template_watch import RENDER_SECONDS, never_ends
from rollcast.tasks.tokens import load_tokenizer

CHECK_SECONDS = 180.0
"""Deadline, with the imports on a busy machine. The check itself takes about a second."""


async def check_chat_format(
    model: Model, prompt_format: PromptFormat, *, needs_tools: bool = True
) -> None:
    """Raises UserError if the model has no format for chats of several turns, or one that does not
    end.
    """
    request = {
        "model": model.model_dump(mode="json"),
        "prompt_format": prompt_format.model_dump(mode="json"),
        "needs_tools": needs_tools,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            error_output, _ = await process.communicate(json.dumps(request).encode())
    except TimeoutError:
        raise UserError(f"model.renderer: {never_ends(model.path, CHECK_SECONDS)}") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # closes its pipes
    if error_output:
        raise UserError(error_output.decode("utf-8", "replace"))
    if process.returncode == EXIT_USER_ERROR:
        raise UserError(f"model.renderer: {never_ends(model.path, RENDER_SECONDS)}")
    if process.returncode:
        raise UserError(
            f"model.renderer: the chat template of {model.path} ended its check with exit code "
            f"{process.returncode}; give the model's folder another template, or name the renderer "
            "of its family in model.renderer"
        )


def main() -> int:
    # Address space: imports reserve some gigabytes.
    max_check_bytes = 32 << 30
    limit(resource.RLIMIT_AS, max_check_bytes)
    request = json.load(sys.stdin)
    model = Model.model_validate(request["model"])
    prompt_format = PromptFormat.model_validate(request["prompt_format"])
    try:
        tokenizer = cast(ChatTokenizer, load_tokenizer(model))
        make_renderer(model, tokenizer, prompt_format, needs_tools=request["needs_tools"])
    except UserError as error:
        print(error, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
