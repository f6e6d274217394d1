"""`emuchain validate --set`: claims with other values of constants, and which verdicts change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from emuchain.emulator.common import InputError
from emuchain.papers import (
    changed_results,
    constants_of,
    freedoms_of,
    load_claims,
    papers,
    parse_changes,
    select,
    sensitivities,
    validate,
)
from emuchain.papers.commands import validate as command
from emuchain.papers.constants import cluster_changes

from .test_sensitivity import silent


def printed(*arguments: str) -> str:
    """What the command prints when it succeeds."""
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_verdicts_are_those_of_the_sensitivity() -> None:
    claims = select("farnn", "rnnt-enc")
    for row in sensitivities("farnn", claims, silent, jobs=1):
        for place in (0, row.constant.values.index(row.constant.default), -1):
            value = row.constant.values[place]
            results = changed_results("farnn", claims, {row.constant.key: value}, silent, jobs=1)
            verdicts = {result.claim.id: result.verdict for result in results.after}
            for name, of_values in row.verdicts.items():
                assert verdicts[name] is of_values[place], (name, row.constant.key, value)
            if value == row.constant.default:
                assert results.turning == [] and results.hanging == 0
    assert cluster_changes() == {}, "no change is left in force"


def test_from_python() -> None:
    claims = [load_claims("fpdeep")["fpdeep-t6-alexnet-gops"]]
    [default], [other] = (
        list(validate("fpdeep", claims, changes)) for changes in (None, {"board.dsp_share": 0.86})
    )
    assert (default.verdict.value, other.verdict.value) == ("within", "off")
    results = validate("fpdeep", claims * 2, {"board.dsp_share": 0.86})
    next(results)
    assert cluster_changes() == {}, "nothing is in force between results"


def test_the_answer_comes_first() -> None:
    lines = printed("fpdeep", "--only", "t6-alexnet", "--set", "dsp_share=0.86").splitlines()
    text = " ".join(" ".join(lines).split())
    assert text.startswith(
        "2 of 3 verdicts change with board.dsp_share = 0.86; 3 measures differ from those with the"
        " defaults no longer good: fpdeep-t6-alexnet-gops, fpdeep-t6-alexnet-gopsj predictions: "
    )
    assert "verdicts that change" in lines
    assert "fpdeep, fitted: published and measured, with board.dsp_share = 0.86" in lines
    assert "is outside what is plausible" not in text
    text = " ".join(
        printed("fpdeep", "--only", "t6-alexnet", "--set", "board.dsp_share=0.5").split()
    )
    assert "board.dsp_share = 0.5 is outside what is plausible, 0.8 to 0.86" in text


def test_json_and_markdown() -> None:
    words = ("farnn", "--only", "rnnt", "--set", "gemm_efficiency=0.95", "--set", "rnnt.steps=300")
    said: Any = json.loads(printed(*words, "--json"))
    assert said["changes"] == {"board.gemm_efficiency": 0.95, "rnnt.steps": 300}
    default = {row["id"]: row for row in json.loads(printed("farnn", "--only", "rnnt", "--json"))}
    now = {row["id"]: row for row in said["claims"]}
    assert now.keys() == default.keys()
    turned = [name for name in now if now[name]["verdict"] != default[name]["verdict"]]
    assert [row["id"] for row in said["turning"]] == turned != []
    for row in said["turning"]:
        assert (row["default_verdict"], row["default_ours"]) == (
            default[row["id"]]["verdict"],
            default[row["id"]]["ours"],
        )
        assert (row["verdict"], row["ours"]) == (now[row["id"]]["verdict"], now[row["id"]]["ours"])
    markdown = printed(*words, "--markdown")
    assert (
        "verdicts change with board.gemm_efficiency = 0.95, rnnt.steps = 300; "
        in markdown.splitlines()[0]
    )
    assert "| rnnt.steps | 548 | 300 | 274 to 1600 |" in markdown


@pytest.mark.parametrize("paper", papers())
def test_every_choice_can_be_made_by_name(paper: str) -> None:
    for choice in freedoms_of(paper)[len(constants_of(paper)) :]:
        for value in choice.values:
            assert parse_changes(paper, [f"{choice.name}={choice.text(value)}"]) == {
                choice.key: value
            }


@pytest.mark.parametrize("paper", papers())
def test_names_of_constants_and_choices_are_unique(paper: str) -> None:
    for names in zip(*((freedom.name, freedom.key) for freedom in freedoms_of(paper)), strict=True):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("paper", papers())
def test_every_constant_can_be_set(paper: str) -> None:
    constants = constants_of(paper)
    given = [f"{constant.key}={constant.values[0]}" for constant in constants]
    assert parse_changes(paper, given) == {
        constant.key: constant.values[0] for constant in constants
    }
    by_name = [f"{constant.name} = {constant.values[-1]}" for constant in constants]
    assert parse_changes(paper, by_name) == {
        constant.key: constant.values[-1] for constant in constants
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["dsp_shar=0.8"],
            (
                "--set dsp_shar=0.8: fpdeep has no constant `dsp_shar`; did you mean `dsp_share`?"
                " its constants"
            ),
        ),
        (["dsp_share"], "--set dsp_share: expected CONSTANT=VALUE, such as dsp_share=0.833"),
        (["dsp_share=0.8", "board.dsp_share=0.9"], "`board.dsp_share` is given twice"),
        (
            ["dsp_share=many"],
            "`board.dsp_share` should be a number from 0.008 to 86; plausible are 0.8 to 0.86",
        ),
        (["dsp_share=nan"], "should be a number"),
        (["dsp_share=-1"], "should be a number"),
        (["dsp_share=1e9"], "should be a number"),
        (["dsp_share=3"], "--set board.dsp_share=3: a claim cannot be measured with it: "),
    ],
)
def test_bad_input(settings: Sequence[str], message: str) -> None:
    words = [
        "fpdeep",
        "--only",
        "t6-alexnet-gops",
        *(word for setting in settings for word in ("--set", setting)),
    ]
    error = CliRunner().invoke(command, words).exception
    assert isinstance(error, InputError)
    assert message in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("other", [["--sensitivity"], ["--pictures", "figures"]])
def test_not_with(other: list[str]) -> None:
    result = CliRunner().invoke(command, ["fpdeep", "--set", "dsp_share=0.85", *other])
    assert result.exit_code == 2
    assert f"--set and {other[0]}: give one of them" in result.output
