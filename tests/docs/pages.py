"""The pages of the documentation, and the code that stands in them."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOMS = ("kernels", "comm", "launch", "emulator", "benchmarks", "papers")
ROOT = Path(__file__).resolve().parent.parent.parent

PAGES = sorted(
    str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
)

_PIECE = re.compile(
    r"^<!-- not run by the tests: (?P<reason>.+?) -->$"
    r"|^<!-- runs where it is installed: (?P<module>\w+) -->$"
    r"|^`(?P<file>[\w./-]+)`:\n\n```\w+\n(?P<content>.*?)^```$"
    r"|^```(?P<language>sh|python)\n(?P<code>.*?)^```$"
    r"|^```text\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

_DIFFERENCE = re.compile(
    r"^In `(?P<file>[\w./-]+)`:\n\n```diff\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass
class Block:
    """A fenced block of commands or Python, the files that stand before it, and the lines that it
    should print.
    """

    page: str
    line: int
    language: str
    code: str
    files: dict[str, str]
    skipped: str | None
    lines: list[str] = field(default_factory=list)
    needs: str | None = None
    """A module; the tests run the block where it is installed."""


def text_of(page: str) -> str:
    """Return the text of a page, by its path from the root."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of code of a page, in order."""
    return blocks_in(text_of(page), page)


def blocks_in(text: str, page: str) -> list[Block]:
    """Return the blocks of code of a page's text, in order."""
    blocks: list[Block] = []
    files: dict[str, str] = {}
    skipped = needs = None
    for match in _PIECE.finditer(text):
        if match["reason"]:
            skipped = match["reason"]
        elif match["module"]:
            needs = match["module"]
        elif match["file"]:
            files[match["file"]] = match["content"]
        elif match["language"]:
            line = text.count("\n", 0, match.start("code")) + 1
            blocks.append(
                Block(page, line, match["language"], match["code"], files, skipped, needs=needs)
            )
            files, skipped = {}, None
        else:
            blocks[-1].lines += match["text"].splitlines()
    return blocks


def extensions_of(page: str) -> dict[str, str]:
    """Return the contents of the page's files that belong into the package, by their paths."""
    return extensions_in(blocks_of(page))


def extensions_in(blocks: Iterable[Block]) -> dict[str, str]:
    """Return the contents of files before blocks that belong into the package, by their paths."""
    files = {name: content for block in blocks for name, content in block.files.items()}
    return {
        name: content
        for name, content in files.items()
        if name.partition("/")[0] in ROOMS and "/" in name
    }


def recipes() -> dict[str, str]:
    """Return the recipes of CONTRIBUTING.md, each with its text, by their headings."""
    _, _, text = text_of("CONTRIBUTING.md").partition("\n## Extensions\n")
    parts = re.split(r"^### (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def apply_differences(text: str, root: Path) -> list[str]:
    """Change files below a folder as the differences in a text say; return their names.

    Lines with - become those with + that follow; + alone is added to the end.
    """
    for match in _DIFFERENCE.finditer(text):
        file = root / match["file"]
        content = file.read_text(encoding="utf-8")
        for old, new in re.findall(r"((?:^-.*\n)*)((?:^\+.*\n)+)", match["lines"], re.MULTILINE):
            before, after = (
                "\n".join(line[1:] for line in lines.splitlines()) for lines in (old, new)
            )
            assert before in content, f"{match['file']}: has no {before!r}"
            content = content.replace(before, after) if before else f"{content}\n{after}\n"
        file.write_text(content, encoding="utf-8")
    return [match["file"] for match in _DIFFERENCE.finditer(text)]


def extended_package(folder: Path, extensions: dict[str, str]) -> None:
    """Make a copy of the package in a folder, of links to its files, and put files of a page into
    it.
    """
    package = folder / "emuchain"
    package.mkdir()
    for path in ROOT.iterdir():
        if path.suffix in (".py", ".pyi", ".typed"):
            (package / path.name).symlink_to(path)
    for room in ROOMS:
        for inside, folders, names in os.walk(ROOT / room):
            folders[:] = [name for name in folders if name != "__pycache__"]
            copy = package / Path(inside).relative_to(ROOT)
            copy.mkdir()
            for name in names:
                (copy / name).symlink_to(Path(inside, name))
    for name, content in extensions.items():
        (package / name).parent.mkdir(exist_ok=True)
        with (package / name).open(
            "x"
        ) as file:  # not "w", which would follow a link and change a file of ours
            file.write(content)
