"""How an answer prints its range, and names the classes of constants."""

from emuchain.emulator.run import AnswerRange
from emuchain.emulator.view import class_words, range_lines

CLASSES = {
    "link.bandwidth_gbps": "data sheet",
    "board.off_chip_gbytes_per_s": "data sheet",
    "link.latency_ns": "assumed",
}


def answer(**share_of_width: float) -> AnswerRange:
    shares = {f"board.{key}": share for key, share in share_of_width.items()}
    return AnswerRange(7794, 9224, 4000, CLASSES, shares)


def test_lines() -> None:
    lines = [line.text for line in range_lines(answer(clock_mhz=0.0, off_chip_gbytes_per_s=1.0))]
    assert lines == [
        "range: 90 % from 7,794 to 9,224; memory by data sheet, links assumed",
        "measure first: board.off_chip_gbytes_per_s (all of the width)",
    ]
    assert "(63.0 % of the width)" in range_lines(answer(clock_mhz=0.63))[1].text


def test_point_has_nothing_to_measure() -> None:
    assert [line.text for line in range_lines(AnswerRange(5, 5, 4000, {}, {}))] == ["range: 90 % from 5 to 5"]
    assert range_lines(None) == []


def test_least_certain_class_of_a_group_is_told() -> None:
    assert class_words({"board.clock_mhz": "fitted", "board.efficiency": "measured"}) == "engines fitted to a paper"
    assert class_words({"network.latency_us": "measured"}) == "network measured"
