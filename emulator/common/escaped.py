"""Text of others for a terminal."""


def escaped(text: str) -> str:
    """Return text in which characters that a terminal obeys are spelled out; lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )
