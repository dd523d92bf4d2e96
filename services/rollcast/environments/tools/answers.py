"""Answers of tools: the middle of a long one is cut out, and the answer says so."""


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
