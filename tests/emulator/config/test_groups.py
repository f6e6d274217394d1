"""Keys of a run in the tables of a TOML file."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.config import GROUPS, Config, load_config, read_keys

from .test_config import OTHERS


def file_of(folder: Path, text: str) -> str:
    path = folder / "run.toml"
    path.write_text(text)
    return str(path)


def test_each_key_is_in_one_table() -> None:
    keys = list(itertools.chain(*GROUPS.values()))
    assert sorted(keys) == sorted(Config.model_fields)


def test_tables_say_what_keys_at_the_top_say(tmp_path: Path) -> None:
    lines = {key: f"{key} = {OTHERS[key][1]}\n" for key in Config.model_fields}
    at_the_top = load_config(file_of(tmp_path, "".join(lines.values())), {})
    tables = (f"[{group}]\n{''.join(map(lines.get, keys))}" for group, keys in GROUPS.items())  # type: ignore[arg-type]
    assert load_config(file_of(tmp_path, "".join(tables)), {}) == at_the_top


def test_a_file_may_have_both(tmp_path: Path) -> None:
    file = file_of(
        tmp_path, "batch = 8\n[chain]\ndevices = 3\n[hardware.precision]\nformat = 'bf16'\n"
    )
    config = load_config(file, {"devices": 5, "precision": {"master": "fp32"}})
    assert (config.batch, config.devices, str(config.precision)) == (
        8,
        5,
        str(Config(precision=PRECISION).precision),
    )
    assert read_keys(file) == {"batch": 8, "devices": 3, "precision": {"format": "bf16"}}


PRECISION: dict[str, Any] = {"format": "bf16", "master": "fp32"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[chain]\nbatch = 3",
            "`chain.batch`: is a key of [training]; move it there, or to the top",
        ),
        (
            "batch = 3\n[training]\nbatch = 3",
            "`batch` is given twice, at the top and in [training]; leave one out",
        ),
        ("[training]\nbach = 3", "unknown key `bach` = 3; did you mean `batch`? "),
        (
            "[trainin]\nbatch = 3",
            "unknown table [trainin]; did you mean `training`? known tables: [model], [dataset]",
        ),
        (
            "training = 3",
            "`training` = 3: should be a table, [training] with keys such as `epochs`",
        ),
        ("[[training]]\nbatch = 3", "`training` = [{'batch': 3}]: should be a table"),
        ("[training]\nbatch = 0", "`batch` = 0: should be greater than or equal to 1"),
        ("[data]\nsamples = 3", "`data` = {'samples': 3}: should be a valid string"),
    ],
)
def test_what_is_in_the_wrong_place(
    tmp_path: Path, one_line: Callable[..., str], text: str, message: str
) -> None:
    file = file_of(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_config(file, {})
    line = one_line(error)
    assert line.startswith(f"{file}: ")
    assert message in line
