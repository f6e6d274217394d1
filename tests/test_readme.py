"""What README.md and docs/ say is so: the commands run and print what is shown, the tables of keys are complete."""

import contextlib
import importlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from emuchain.emulator.network.description import Description, Node

ROOT = Path(__file__).resolve().parent.parent
COMMAND_TIMEOUT_S = 240

_PIECE = re.compile(
    r"^<!-- not run by the tests: (?P<reason>.+?) -->$"
    r"|^`(?P<file>[\w.-]+\.toml)`:\n\n```toml\n(?P<toml>.*?)^```$"
    r"|^```sh\n(?P<sh>.*?)^```$"
    r"|^```text\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    """A fenced block of commands, the files that stand before it, and the lines that it should print."""

    line: int
    commands: str
    files: dict[str, str]
    skipped: str | None
    lines: list[str] = field(default_factory=list)


def blocks_of(page: str) -> list[Block]:
    """The blocks of commands of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks: list[Block] = []
    files: dict[str, str] = {}
    skipped = None
    for match in _PIECE.finditer(text):
        if match["reason"]:
            skipped = match["reason"]
        elif match["file"]:
            files[match["file"]] = match["toml"]
        elif match["sh"] is not None:
            blocks.append(Block(text.count("\n", 0, match.start()) + 1, match["sh"], files, skipped))
            files, skipped = {}, None
        else:
            blocks[-1].lines += match["text"].splitlines()
    return blocks


def run_shell(commands: str, folder: Path, binaries: Path) -> subprocess.CompletedProcess[str]:
    """Run commands as a person would, the environment's programs first; nothing of them outlives the call."""
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    out, err = folder / ".stdout", folder / ".stderr"
    with out.open("w") as out_file, err.open("w") as err_file:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            start_new_session=True,
        )
        try:
            status = process.wait(COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            below = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGKILL)
            for child in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            status = process.wait()
    return subprocess.CompletedProcess(commands, status, out.read_text(), err.read_text())


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/time-model.md",
        "docs/configuration.md",
        "docs/exchange.md",
        "docs/validation.md",
        "docs/validation-inceptionn.md",
    ],
)
def test_commands_run_as_shown(mpiexec, tmp_path: Path, page: str) -> None:  # type: ignore[no-untyped-def]  # a fixture
    blocks = blocks_of(page)
    assert any(block.skipped is None for block in blocks)
    for block in blocks:
        for name, content in block.files.items():
            (tmp_path / name).write_text(content)
        if block.skipped is not None:
            continue
        finished = run_shell(block.commands, tmp_path, mpiexec.launcher.parent)
        told = f"{page}:{block.line}\n{block.commands}--- printed\n{finished.stdout}--- and\n{finished.stderr}"
        assert finished.returncode == 0, f"status {finished.returncode}: {told}"
        assert "Traceback" not in finished.stdout + finished.stderr, told
        for line in block.lines:
            assert line in finished.stdout.splitlines(), f"{line!r} is not printed: {told}"


PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not target.endswith("convergence.png"):  # which a long run draws
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


_TABLE = re.compile(r"^<!-- keys of (?P<model>[\w.]+) -->\n\n(?P<rows>(?:^\|.*\n)+)", re.MULTILINE)


def tables() -> dict[str, list[list[str]]]:
    """The tables of keys of docs/configuration.md: for each model its rows, without the head."""
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    return {
        match["model"]: [
            [cell.strip() for cell in row.strip("|").split(" | ")] for row in match["rows"].splitlines()[2:]
        ]
        for match in _TABLE.finditer(text)
    }


def kind_of(schema: dict[str, Any]) -> str:
    """The type of a key, as the page says it."""
    if "anyOf" in schema:
        return next(kind_of(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "$ref" in schema:
        return "table"
    if "const" in schema or "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema.get("enum", [schema.get("const")]))
    if schema["type"] == "array":
        if "prefixItems" not in schema:
            items = schema["items"]
            if items == {"type": "string"}:
                return "string, or array of string"
            return "array of tables" if "$ref" in items or "oneOf" in items else f"array of {kind_of(items)}"
        item = kind_of(schema["prefixItems"][0])
        count = len(schema["prefixItems"])
        return f"{item}, or an array of two" if count == 2 else f"array of {count}: {item}"
    bounds = [
        f"{sign} {_number(schema[name])}"
        for name, sign in (
            ("minimum", ">="),
            ("exclusiveMinimum", ">"),
            ("maximum", "<="),
            ("exclusiveMaximum", "<"),
        )
        if name in schema
    ]
    return " ".join([schema["type"], ", ".join(bounds)]).strip()


def _number(value: float) -> str:
    return "2^63" if value == 1 << 63 else f"{value:g}"


def default_of(name: str, schema: dict[str, Any], model_schema: dict[str, Any]) -> str:
    """The default of a key, as the page says it."""
    if name in model_schema.get("required", ()):
        return "required"
    value = schema["default"]
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"`{value[0]}`" if len(set(value)) == 1 else f"`{value}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{str(value).lower()}`"


MODELS = {
    "config": ["Config"],
    "network.description": [
        *("Description", "Node", "Conv", "Fc", "Relu", "Pool", "GlobalAveragePool", "BatchNorm"),
        *("Add", "Concat", "Lrn", "Dropout", "Softmax"),
    ],
    "cluster": ["ClusterDescription", "BoardDescription", "LinksDescription", "ResourcesDescription"],
}


@pytest.mark.parametrize("model_name", [f"{module}.{model}" for module, models in MODELS.items() for model in models])
def test_every_key_is_explained(model_name: str) -> None:
    module, _, name = model_name.rpartition(".")
    model = getattr(importlib.import_module(f"emuchain.emulator.{module}"), name)
    schema = model.model_json_schema()
    expected = []
    # What all operations may say is explained once.
    common = Node.model_json_schema()["properties"] if issubclass(model, Node) and model is not Node else {}
    for key, of in schema["properties"].items():
        if common.get(key) == of:
            continue
        row = [f"`{key}`", kind_of(of), default_of(key, of, schema)]
        expected.append([*row, of["description"]] if module == "config" else row)
    found = tables()[model_name]
    assert all(len(row) == 4 and row[3] for row in found), "each key has its meaning"
    found = [row if module == "config" else row[:3] for row in found]
    head = f"docs/configuration.md, keys of {model_name}, should read:\n"
    assert found == expected, head + "\n".join(f"| {' | '.join(row)} |" for row in expected)


def test_every_operation_is_in_the_reference() -> None:
    operations = Description.model_json_schema()["properties"]["layers"]["items"]
    classes = {ref.rsplit("/", 1)[-1] for ref in operations["discriminator"]["mapping"].values()}
    assert classes == set(MODELS["network.description"]) - {"Description", "Node"}
