"""Text of others, such as names of files, which may have any characters: for a terminal, and for files."""

NAMES = "surrogateescape"
"""How Python keeps bytes of a file's name that are no UTF-8, as `errors` of what decodes or encodes."""


def escaped(text: str) -> str:
    """Return text in which characters that a terminal obeys are spelled out; lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )


def encoded(text: str) -> bytes:
    """Return text as UTF-8, in which names of files have the bytes that they have on the disk."""
    return text.encode("utf-8", NAMES)
