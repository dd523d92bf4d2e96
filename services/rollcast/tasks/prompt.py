"""One prompt: its text, what its answer is compared with, and its id."""

import hashlib
import json
import unicodedata
from dataclasses import dataclass

from rollcast.tasks.chats import Chat, flat, make_chat


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    """Stable across runs: made from the data set's name and the text."""
    dataset: str
    text: str
    """The texts of a chat's messages, one after the other."""
    reference: str
    """JSON text, given to the verifier, or to the environment."""
    verifier: str
    """Empty = the environment rewards."""
    chat: Chat = ()
    """Its messages, unless it is a single one by the user."""
    environment: str = ""
    """The environment in which it is answered; `reference` is then the whole row. Empty = one
    answer, without tools."""
    answer: str = ""
    """JSON text for a built-in verifier of an episode. Empty = the reference is for the
    verifier."""

    @property
    def messages(self) -> Chat:
        return self.chat or make_chat(self.text)

    @property
    def verifier_reference(self) -> str:
        """JSON text that its verifier gets."""
        return self.answer or self.reference


def make_prompt(dataset: str, messages: Chat, reference: object, verifier: str) -> Prompt:
    text = flat(messages)
    identity = make_prompt_id(dataset, spelling(text))
    return Prompt(
        identity,
        dataset,
        text,
        json.dumps(reference),
        verifier,
        chat=messages if len(messages) > 1 else (),
    )


def make_prompt_id(dataset: str, text: str) -> str:
    return digest(f"{dataset}/{text}")[:16]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def normalise(text: str) -> str:
    """The text under which two prompts count as the same.

    Only what no reader can see does not matter: how an accent is encoded, line ends, blank lines
    around the text.
    """
    lines = [line.rstrip() for line in unicodedata.normalize("NFC", text).splitlines()]
    return "\n".join(lines).strip("\n")


def spelling(text: str) -> str:
    """The text without compatibility forms, case and white space: the basis of ids and of the
    choice of held-out prompts, so that both stay the same as in earlier runs. Different prompts may
    share one."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
