"""Files about the project: they agree with the package, and with one another."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import emuchain

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def text_of(path: str) -> str:
    """The text of a file in the checkout."""
    return (ROOT / path).read_text(encoding="utf-8")


def workflow() -> Any:
    """The workflow of the checks."""
    return yaml.safe_load(text_of(".github/workflows/ci.yml"))


def test_the_citation_is_of_this_version(settings: configparser.ConfigParser) -> None:
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert citation["version"] == emuchain.__version__
    assert citation["license"] == settings["metadata"]["license"]
    assert citation["cff-version"] == "1.2.0"


def test_the_citation_has_the_papers_of_the_readme() -> None:
    licence = " ".join(text_of("README.md").partition("## Licence")[2].split())
    papers = yaml.safe_load(text_of("CITATION.cff"))["references"]
    assert len(papers) == 4
    for paper in papers:
        assert f"*{paper['title']}*" in licence
        first, second = (author["family-names"] for author in paper["authors"][:2])
        assert f"{first}, {second} et al." in licence
        assert str(paper["year"]) in licence


def test_checks_run_under_each_python_that_is_named(settings: configparser.ConfigParser) -> None:
    versions = re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$", settings["metadata"]["classifiers"], re.M
    )
    assert versions == workflow()["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert settings["options"]["python_requires"] == f">={versions[0]}"


def test_checks_call_what_there_is() -> None:
    steps = [step for job in workflow()["jobs"].values() for step in job["steps"]]
    called = {step["run"].split()[0] for step in steps if "run" in step}
    assert called == {"./scripts/test", "./scripts/test-wheel", "python"}
    assert all((ROOT / command).stat().st_mode & 0o111 for command in called - {"python"})
    assert {step["uses"] for step in steps if "uses" in step}
    assert all(
        re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step
    )


@pytest.mark.parametrize("recipe", ["Dockerfile", "apptainer.def"])
def test_containers_install_extras_that_there_are(
    settings: configparser.ConfigParser, recipe: str
) -> None:
    [extras] = re.findall(r"\.whl\)\[([\w,-]+)\]", text_of(recipe))
    assert set(extras.split(",")) <= set(settings["options.extras_require"])
    [python] = set(re.findall(r"^(?:FROM|From:) python:(3\.\d+)-slim-\w+", text_of(recipe), re.M))
    assert python in settings["metadata"]["classifiers"]


def test_the_sdist_takes_in_what_is_not_of_the_package() -> None:
    """`scripts/test-wheel` builds one, and compares it with the checkout."""
    grafted = {
        line.split()[1] for line in text_of("MANIFEST.in").splitlines() if line.startswith("graft ")
    }
    assert grafted >= {"docs", "scripts", "tests"}
    assert all((ROOT / folder).is_dir() for folder in grafted)
