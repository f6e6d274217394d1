"""Which points of a sweep can be the one with the fewest boards that reaches a rate: only these are
computed.

No point is faster than its multipliers would be, were all always busy; and replicas are not faster
than as many chains, each alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...cluster import Fpga
from ...common import InputError
from ...config import settings_config
from ...network import with_formats
from ...plan import in_precision
from .result import DEVICES, REPLICAS, SCHEDULES, reaches
from .space import Point

_ROUNDING = 1e-6
"""Share of a rate by which a bound may be missed: rates are of periods in whole picoseconds."""

Rows = Sequence[Mapping[str, Any] | None]


def seeking_values(values: Mapping[str, Any], target: float | None) -> dict[str, Any]:
    """Return the values of a sweep, with the numbers of boards and of replicas, and the schedules,
    that are tried for a target if neither boards nor replicas are given.
    """
    given = {key for key, value in values.items() if value is not None}
    if target is None or {"devices", "replicas"} & given:
        return dict(values)
    schedules = {} if "schedule" in given else {"schedule": SCHEDULES}
    return {**values, "devices": DEVICES, "replicas": REPLICAS, **schedules}


class Seeking:
    """The points that are computed, step by step, to reach a rate in samples per second."""

    def __init__(self, points: Sequence[Point], samples_per_s: float) -> None:
        self._points, self._least = points, samples_per_s * (1 - _ROUNDING)
        self._target = samples_per_s
        self._lone: dict[tuple[Any, ...], int] = {}
        """Places of the points with one replica."""
        for place, point in enumerate(points):
            if _replicas(point) == 1:
                self._lone[self._chain(point)] = place
        self._order = sorted(range(len(points)), key=lambda place: _boards(points[place]))

    def next(self, rows: Rows, most: int) -> list[int]:
        """Return the places of up to `most` points to be computed next, the fewest boards first;
        none once the target is decided.

        Args:
            rows: by place the row of each point that is computed.
            most: how many can be computed at a time.
        """
        reaching = [row for row in rows if row is not None and reaches(row, self._target)]
        boards = min((row["boards"] for row in reaching), default=math.inf)
        chosen: dict[int, None] = {}
        for place in self._order:
            point = self._points[place]
            if len(chosen) == most or _boards(point) > boards:
                break
            if rows[place] is None and self._bound(place) >= self._least:
                lone = self._lone.get(self._chain(point), place)
                row = rows[lone]
                if row is None:
                    chosen[lone] = None
                elif not row["error"] and row["images_per_s"] * _replicas(point) >= self._least:
                    chosen[place] = None
        return list(chosen) or ([] if reaching else self._fastest(rows))

    def _fastest(self, rows: Rows) -> list[int]:
        """Return the point that may be the fastest where none reaches the rate, and none has a rate
        yet.
        """
        if any(row is not None and row["error"] is None for row in rows):
            return []
        left = [
            place
            for place in reversed(self._order)
            if rows[place] is None and self._lone_fails(place, rows) is None
        ]
        return left[:1]

    def _lone_fails(self, place: int, rows: Rows) -> str | None:
        lone = rows[self._lone.get(self._chain(self._points[place]), place)]
        error: str | None = None if lone is None else lone["error"]
        return error

    def _chain(self, point: Point) -> tuple[Any, ...]:
        """Return what points have in common that differ in replicas alone."""
        return tuple((key, value) for key, value in point.keys.items() if key != "replicas")

    @functools.cache  # noqa: B019  # as long as the search
    def _bound(self, place: int) -> float:
        """Return a rate that no point of these boards exceeds, in samples per second."""
        point = self._points[place]
        if point.cluster is None:
            return 0.0
        devices, macs = point.keys["devices"], point.network.training_macs
        try:
            config = settings_config(point.settings)
            precision = config.precision
            formats = with_formats(point.network, precision)
            built = in_precision(point.cluster, precision, formats)
            boards = [built.board(device) for device in range(devices)]
        except (InputError, ValueError):  # the point says why when it is computed
            return math.inf
        of_chain = sum(board.capacity if isinstance(board, Fpga) else math.inf for board in boards)
        return _replicas(point) * of_chain * 1e12 / macs


def _replicas(point: Point) -> int:
    return int(point.settings.get("replicas") or 1)


def _boards(point: Point) -> int:
    return int(point.keys["devices"]) * _replicas(point)
