"""Whether a teacher has the tokenizer of the trained model: its log-prob of a token id must be
about the same token.

    folder    its tokenizer is read, and every token of the model's must have the same id there
    endpoint  vLLM decodes every token id of the model (/detokenize), and the text must be the
              model's own

A teacher may have more tokens than the model.
"""

import asyncio
from typing import Any, Protocol, cast

from rollcast.config.distillation import Distillation, EndpointTeacher, FolderTeacher
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.tasks.remote.asking import Asking, NoAnswer
from rollcast.tasks.tokens import Tokenizer, load_tokenizer

API = "/v1"
"""End of an endpoint's address; /tokenize and /detokenize are next to it."""


class WholeVocabulary(Protocol):
    """The part of a Hugging Face tokenizer that is compared."""

    def get_vocab(self) -> dict[str, int]: ...
    def decode(self, token_ids: Any, **options: Any) -> str: ...


def check_teacher(settings: Distillation | None, model: Model, tokenizer: Tokenizer) -> None:
    """Raises UserError if the teacher has other tokens than the model, or an endpoint cannot be
    asked.
    """
    if settings is None:
        return
    model_tokenizer = cast(WholeVocabulary, tokenizer)
    match settings.teacher:
        case FolderTeacher(path=path):
            _compare_folder(path, model, model_tokenizer)
        case EndpointTeacher() as endpoint:
            asyncio.run(_compare_endpoint(endpoint, model, model_tokenizer))


def _compare_folder(path: str, model: Model, model_tokenizer: WholeVocabulary) -> None:
    setting = "recipe.distillation.teacher.path"
    try:
        teacher = cast(WholeVocabulary, load_tokenizer(model.model_copy(update={"path": path})))
    except UserError as error:
        raise type(error)(str(error).replace("model.path", setting)) from error
    teacher_vocabulary = teacher.get_vocab()
    differing = sorted(
        token
        for token, number in model_tokenizer.get_vocab().items()
        if teacher_vocabulary.get(token) != number
    )
    if differing:
        raise UserError(
            f"{setting} = {path!r} has another tokenizer than model.path = {model.path!r}: "
            f"{len(differing)} tokens "
            f"differ, such as {differing[0]!r}; give a teacher with the same tokenizer"
        )


async def _compare_endpoint(
    settings: EndpointTeacher, model: Model, model_tokenizer: WholeVocabulary
) -> None:
    # How long a teacher may take to answer at the start of a run: one that is still loading is
    # waited for
    patience = min(settings.deadline_seconds, 60.0)
    brief = settings.model_copy(update={"deadline_seconds": patience})
    # The text of a whole vocabulary has some megabytes
    asking = Asking(brief, lambda _: None, 32 << 20)
    root = settings.url.rstrip("/").removesuffix(API)
    token_ids = sorted(model_tokenizer.get_vocab().values())
    length_request = {"model": settings.model, "prompt": "a"}
    words_request = {"model": settings.model, "tokens": token_ids}
    try:
        max_length = await asking.ask(
            f"{root}/tokenize", length_request, lambda answer: int(answer["max_model_len"])
        )
        text = await asking.ask(
            f"{root}/detokenize", words_request, lambda answer: str(answer["prompt"])
        )
    except NoAnswer as error:
        raise UserError(
            f"recipe.distillation.teacher.url = {settings.url!r}: {error}; start the teacher there "
            f"(`vllm serve {settings.model}`), or correct the address or the model's name"
        ) from error
    finally:
        await asking.close()
    # All tokens are one text, in which a difference of any of them shows.
    if text != model_tokenizer.decode(token_ids):
        raise UserError(
            f"recipe.distillation.teacher.url = {settings.url!r}: {settings.model} has another "
            f"tokenizer than model.path = {model.path!r}; give a teacher with the same tokenizer"
        )
    # vLLM samples at least one token after those whose log-probs are asked for.
    if max_length <= model.max_length:
        needed = model.max_length + 1
        raise UserError(
            f"recipe.distillation.teacher.url = {settings.url!r}: {settings.model} takes "
            f"{max_length} tokens, and a rollout may have model.max_length = {model.max_length}; "
            f"start it with --max-model-len {needed}, or lower model.max_length"
        )
