"""What a run says of its hosts."""

from __future__ import annotations

import pytest

from emuchain.emulator.commands.train import hosts


@pytest.mark.parametrize(
    ("ranks", "needed", "said"),
    [
        (1, 1, "one process"),
        (1, 4, "one process"),
        (2, 4, "2 ranks"),
        (4, 4, "4 ranks"),
        (3, 2, "3 ranks (1 rank idle)"),
        (4, 2, "4 ranks (2 ranks idle)"),
    ],
)
def test_hosts_name_idle_ranks(ranks: int, needed: int, said: str) -> None:
    assert hosts(ranks, needed) == said
