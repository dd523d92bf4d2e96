"""Answers of tools. The middle of a long one is cut out, and the answer says so."""


def cut(text: str, max_characters: int) -> str:
    """The beginning and the end of `text`, where its cause and its result usually are; all of it if
    it is short enough.

    The note about the cut is added to `max_characters`.
    """
    if len(text) <= max_characters:
        return text
    num_last = max_characters // 2
    num_first = max_characters - num_last
    num_cut = len(text) - max_characters
    return (
        f"{text[:num_first]}\n[... {num_cut} characters were cut "
        f"...]\n{text[len(text) - num_last :]}"
    )


def command_answer(text: str, code: int, overdue_seconds: float | None = None) -> str:
    """The answer to a command with this output. overdue_seconds: after which it was ended; None =
    it has ended itself.
    """
    if overdue_seconds is not None:
        return f"{text}\n[ended: the command took more than {overdue_seconds:g} s]".lstrip("\n")
    exit_note = f"\n[exit code {code}]" if code else ""
    return f"{text}{exit_note}".strip("\n") or "(no output)"
