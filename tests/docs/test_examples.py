"""The files of examples/ run, print what they say that they print, and each stands in
docs/python.md with its question.
"""

import ast
import re
import runpy
from pathlib import Path

import pytest

from .pages import ROOT, text_of

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PRINTS = "\n# Prints:\n"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = file.read_text(encoding="utf-8")
    if "import torch\n" in text:
        pytest.importorskip("torch")
    runpy.run_path(str(file), run_name="__main__")
    said = [line.removeprefix("# ") for line in text.partition(PRINTS)[2].splitlines()]
    assert said and capsys.readouterr().out.splitlines() == said
    assert not list(tmp_path.iterdir())


def test_the_page_has_all_with_their_questions() -> None:
    linked = re.findall(
        r"^\| \[(.+?)\]\(\.\./examples/(\w+)\.py\) \|$", text_of("docs/python.md"), re.M
    )
    questions = {}
    for file in EXAMPLES:
        question = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        assert question is not None and question.endswith("?") and "\n" not in question
        questions[file.stem] = question
        assert len(file.read_text(encoding="utf-8").splitlines()) < 50
    assert {name: question for question, name in linked} == questions
