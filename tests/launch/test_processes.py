"""Ranks share the processors of a host by their work."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.launch import SingleProcess
from emuchain.launch.processes import niceness
from emuchain.launch.ranks import MpiRanks

WORK = st.integers(1, 1 << 60)


def test_by_hand() -> None:
    assert [niceness(work, 1000) for work in (1000, 800, 640, 100, 1, 0)] == [0, 1, 2, 10, 10, 10]


@given(WORK, WORK)
def test_weights_are_as_the_work(work: int, other: int) -> None:
    most = max(work, other)
    by = niceness(min(work, other), most)
    assert 0 <= by <= 10
    assert 1.25**by <= most / min(work, other) * 1.12 or by == 0
    assert by == 10 or 1.25**by >= most / min(work, other) / 1.12


@pytest.mark.parametrize(
    ("ranks", "here", "cores", "idles"),
    [(2, 2, 2, True), (2, 2, 1, False), (4, 2, 2, True), (4, 3, 2, False), (1, 1, 2, False)],
)
def test_a_processor_idles_unless_ranks_outnumber_those_of_the_host(
    ranks: int, here: int, cores: int, idles: bool
) -> None:
    rank = SimpleNamespace(size=ranks, _on_this_host=[*range(here)], _cores=cores)
    getter = MpiRanks.idles.fget
    assert getter is not None
    assert getter(rank) is idles  # type: ignore[arg-type]  # what it looks at
    assert not SingleProcess().idles


RANK = """
import os, pathlib, sys
from types import SimpleNamespace
from emuchain.launch import ranks
rank = SimpleNamespace(
    rank=2, _on_this_host=[1, 2], _cores=int(sys.argv[1]), _niceness=os.getpriority(os.PRIO_PROCESS, 0)
)
ranks.MpiRanks.share_processors(rank, [1 << 40, 1250, 1000])
group = pathlib.Path("/proc/self/autogroup")
of_session = group.read_text().split() if group.exists() else []
print(os.getpriority(os.PRIO_PROCESS, 0) - rank._niceness, of_session[-1] if of_session else "none")
"""


@pytest.mark.parametrize(("cores", "nicer"), [(1, 1), (2, 0)])
@pytest.mark.parametrize("leads", [True, False])
def test_only_ranks_of_a_host_with_too_few_processors_are_nicer(
    cores: int, nicer: int, leads: bool
) -> None:
    """Niceness counts within a session; a rank that leads one sets that of the session, too.

    The file is empty for processes that Linux puts in no session's group.
    """
    if os.getpriority(os.PRIO_PROCESS, 0) > 18:
        pytest.skip("this process has the greatest niceness already")
    done = subprocess.run(
        [sys.executable, "-c", RANK, str(cores)],
        start_new_session=leads,
        capture_output=True,
        text=True,
        check=True,
    )
    own, of_session = done.stdout.split()
    assert int(own) == nicer
    if leads and of_session != "none":
        assert int(of_session) == nicer
