"""The pages of the documentation, and the code that stands in them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")))

_PIECE = re.compile(
    r"^<!-- not run by the tests: (?P<reason>.+?) -->$"
    r"|^`(?P<file>[\w.-]+)`:\n\n```\w+\n(?P<content>.*?)^```$"
    r"|^```(?P<language>sh|python)\n(?P<code>.*?)^```$"
    r"|^```text\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    """A fenced block of commands or Python, the files that stand before it, and the lines that it should print."""

    page: str
    line: int
    language: str
    code: str
    files: dict[str, str]
    skipped: str | None
    lines: list[str] = field(default_factory=list)


def text_of(page: str) -> str:
    """Return the text of a page, by its path from the root."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of code of a page, in order."""
    text = text_of(page)
    blocks: list[Block] = []
    files: dict[str, str] = {}
    skipped = None
    for match in _PIECE.finditer(text):
        if match["reason"]:
            skipped = match["reason"]
        elif match["file"]:
            files[match["file"]] = match["content"]
        elif match["language"]:
            line = text.count("\n", 0, match.start("code")) + 1
            blocks.append(Block(page, line, match["language"], match["code"], files, skipped))
            files, skipped = {}, None
        else:
            blocks[-1].lines += match["text"].splitlines()
    return blocks
