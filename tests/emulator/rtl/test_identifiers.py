"""Names of layers as identifiers, which no other name has, and which are no words of SystemVerilog
or C++.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.rtl.design import comment, identifier

LAYERS = (
    '[{{type="conv",name="{}",channels=2,kernel=2}},{{type="fc",features=2}},{{type="softmax"}}]'
)


@pytest.mark.parametrize("name", ["conv1", "conv1_1", "fc6", "Conv3"])
def test_plain_names_stay(name: str) -> None:
    assert identifier(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("input", "reg", "clk", "Module", "class", "a-b", "a_b", "a.b", "a_dx", "3x3", "", "ü"),
        *(
            "overruns",
            "updated",
            "schedule",
            "share",
            "reset",
            "done",
            "limit",
            "reads",
            "of",
            "device0",
            "Slice",
            "valid",
        ),
    ],
)
def test_others_get_a_digest(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z]\w*_[0-9a-f]{8}", identifier(name), re.ASCII)


@given(st.lists(st.text(max_size=6), unique=True, max_size=20))
def test_different_names_have_different_identifiers(names: list[str]) -> None:
    assert len({identifier(name).lower() for name in names}) >= len(
        {name.lower() for name in names}
    )


@given(st.text())
def test_a_comment_is_one_line_of_printable_characters(text: str) -> None:
    assert comment(text).isprintable()


@pytest.mark.parametrize("name", ["two\\nlines", "\\u001b[31m", "", " ", "\\u202e", "n" * 201])
@pytest.mark.parametrize("place", ["network", "layer"])
def test_names_are_one_line_of_printable_characters(name: str, place: str, tmp_path: Path) -> None:
    network, layer = (name, "conv1") if place == "network" else ("n", name)
    file = tmp_path / "n.toml"
    file.write_text(
        f'name = "{network}"\ninput = [1, 4, 4]\nlayers = {LAYERS.format(layer)}\n',
        encoding="utf-8",
    )
    with pytest.raises(
        InputError, match="a name is one line of 1 to 200 printable characters"
    ) as raised:
        load_network(str(file))
    assert str(raised.value).isprintable()
