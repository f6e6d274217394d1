"""docs/tutorial.ipynb is kept without outputs, and runs from its first cell to its picture."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from .pages import ROOT

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
CELL_TIMEOUT_S = 240


def notebook() -> Any:
    """The notebook, valid."""
    found = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(found)
    return found


def test_outputs_are_stripped() -> None:
    cells = [cell for cell in notebook().cells if cell.cell_type == "code"]
    assert len(cells) == 8
    assert [
        cell.id for cell in cells if cell.outputs or cell.execution_count or cell.metadata
    ] == []
    assert set(notebook().metadata) == {"kernelspec", "language_info"}


def shown(cell: Any, kind: str) -> str:
    """What a cell shows in a form such as text/plain; what it prints."""
    data = [
        output["text"] if "text" in output else output["data"].get(kind, "")
        for output in cell.outputs
    ]
    return "".join(data)


@pytest.mark.exhaustive  # docs/python.md shows the same calls
@pytest.mark.slow
def test_it_runs(tmp_path: Path) -> None:
    found = notebook()
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(found, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources=place).execute()
    cells = {cell.id: cell for cell in found.cells if cell.cell_type == "code"}
    assert shown(cells["plan"], "text/plain").startswith("<Plan vgg16-cifar on 15 x VC709")
    for name in ("plan", "simulate", "limits", "training", "retiming"):
        # The bar of a training is an output of its own, above the table.
        assert cells[name].outputs[-1]["data"]["text/html"].startswith("<table>"), name
    assert len(shown(cells["links"], "text/plain").splitlines()) == 5
    assert shown(cells["picture"], "image/png")
