"""Whether the model has an embedding for each token of the prompts, before a trainer is started
that ends there.
"""

from itertools import chain

from rollcast.config.errors import UserError
from rollcast.memory.model_file import read_here
from rollcast.tasks.prompts import PromptSplit
from rollcast.tasks.tokenizer_file import TokenizerFile
from rollcast.tasks.vocabulary import read_num_rows, without_row


def check_embedding_rows(path: str, split: PromptSplit, tokenizer: TokenizerFile) -> None:
    """Raises UserError if a prompt holds an added token without one. `path`: model.path.

    The trainer checks the ids themselves, those of the chat template included.
    """
    try:
        rows = read_num_rows(read_here(path) or {})
    except UserError:  # the check of the model's files reports it
        return
    beyond = {} if rows is None else tokenizer.added_from(rows)
    if rows is None or not beyond:
        return
    for prompt in chain(split.train, split.held_out, *split.downstream.values()):
        if (token := next((token for token in beyond if token in prompt.text), None)) is not None:
            raise without_row(path, token, beyond[token], rows, prompt.text)
