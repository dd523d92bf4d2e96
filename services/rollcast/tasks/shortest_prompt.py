"""A program: tokens of the shortest prompt of each group, counted exactly as the trainer counts them.

It is a process of its own because the command line imports no Transformers. Standard input holds a JSON object with
`model`, `prompt_format` and `groups` of chats; standard output gets a number for each group. Exit code 2 and a sentence
on standard error: the tokenizer cannot be read, or its chat template refuses a prompt.
"""

import json
import sys

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.tasks import PromptFormat
from rollcast.tasks.chats import Message
from rollcast.tasks.tokens import load_tokenizer, tokenize


def main() -> None:
    asked = json.load(sys.stdin)
    prompt_format = PromptFormat.model_validate(asked["prompt_format"])
    tokenizer = load_tokenizer(Model.model_validate(asked["model"]))
    for chats in asked["groups"]:
        messages = [tuple(Message(role, content) for role, content in chat) for chat in chats]
        print(min(len(tokenize(tokenizer, chat, prompt_format)) for chat in messages))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(UserError.exit_code)
