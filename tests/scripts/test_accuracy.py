"""`scripts/accuracy`: docs/accuracy.md has the tables that it makes, of what was measured."""

from typing import Any

import pytest

from emuchain.papers import load_claims
from emuchain.papers.claim import NoEvidence


def test_the_page_is_what_the_script_makes(load: Any) -> None:
    script = load("accuracy")
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.made(text) == text, "run scripts/accuracy --write"


def test_it_prints_what_it_writes(load: Any, run_script: Any, tmp_path: Any) -> None:
    printed = run_script("accuracy", cwd=tmp_path).stdout
    text = load("accuracy").PAGE.read_text(encoding="utf-8")
    assert printed.count("\n\n") == 3
    assert all(block.strip() in text for block in printed.split("\n\n"))


def test_a_page_without_a_place_for_a_table_is_refused(load: Any) -> None:
    script = load("accuracy")
    with pytest.raises(AssertionError, match="summary"):
        script.made("<!-- engines -->\n\n<!-- end -->\n")


def test_estimates_without_a_design_do_not_know_it(load: Any) -> None:
    """The other U280 has 28 % of the board's DSPs, room for 514 multipliers: 2 x 514 x 250 MHz, and
    what the others reach of that, 0.863.
    """
    script = load("accuracy")
    fullest = script.measured()[0]
    alone = script.of_others(fullest)
    assert (fullest.board, alone.multipliers, alone.clock_mhz) == (
        "U280",
        514,
        pytest.approx(250, rel=1e-3),
    )
    assert alone.gflops == pytest.approx(2 * 514 * 0.250 * 0.8632, rel=1e-3)
    assert script.of_dsps(fullest) == pytest.approx(2 * 7683 / 5 * 0.236 * 0.8632, rel=1e-3)
    assert not script.ranged(fullest, alone).holds
    assert script.of_null(fullest) == pytest.approx(2 * 9024 * 0.2)


def test_what_is_not_here_stays_as_the_page_has_it(
    load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load("accuracy")
    monkeypatch.setenv("EMUCHAIN_WITNESSES", "")
    script.collectives.rdma.forget()
    page = "| other | 0 |\n| one | 1.0 % | [a](b.md) |\n"

    def nothing() -> list[str]:
        raise NoEvidence("set EMUCHAIN_WITNESSES")

    assert script.or_as_before(page, "one", nothing) == ["one", "1.0 %", "[a](b.md)"]
    assert script.or_as_before(page, "one", lambda: ["2.0 %"]) == ["one", "2.0 %"]
    assert script.or_as_before("", "one", nothing) == ["one"]
    for cells in (script.layers, script.rdma, script.udp):
        with pytest.raises(NoEvidence, match="set EMUCHAIN_WITNESSES to a folder with"):
            cells()


def test_every_other_size_is_left_out(load: Any) -> None:
    """Sizes that are left out take twice as long as the line through the others; ends are
    fitted.
    """
    rows = [
        {"run": "1", "message_bytes": size, "message_ns": (2 if place % 2 else 1) * (1000 + size)}
        for place, size in enumerate([64, 1024, 16384, 65536, 262144, 1048576, 4194304])
    ]
    done = load("accuracy").left_out(rows)
    assert done.rows == 3
    assert done.null_percent == pytest.approx(50, abs=1)


def test_packets_follow_from_their_headers(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Of 934 bytes and 66 of headers the payload has 93.4 Gb/s; half of that is measured."""
    lines = ["payload_bytes,payload_gbps", "934,46.7", ""]
    (tmp_path / "vnx_udp_u280.csv").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("EMUCHAIN_WITNESSES", str(tmp_path))
    assert load("accuracy").udp() == ["1", "50.0 %", "-50.0 %", "no range", "53.3 %", "-53.3 %"]


def test_errors_are_those_of_each_figure(load: Any) -> None:
    script = load("accuracy")
    claim = load_claims("hardware")["hardware-stream-2-fpgas"]
    assert script.errors([claim], {claim.id: 133.26}) == pytest.approx(
        [133.26 / 131.399 - 1] * 2 + [133.26 / 135.694 - 1, 133.26 / 135.698 - 1]
    )
    assert script.errors([claim], {}) == []
    assert script.spread([0.01, -0.03, 0.02]) == ("2.0 %", "-3.0 %")
    assert script.spread([]) == ("unknown", "unknown")
