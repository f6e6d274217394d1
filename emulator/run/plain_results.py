"""Parts of results as JSON and CSV have them, under the names that they have in Python."""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Any

from ..common import plain
from .tables import Table
from .usage import Usage


def usage_as_dict(usage: Usage) -> dict[str, Any]:
    """Return usage as JSON's values."""
    links = [
        {**dataclasses.asdict(link), "path_bytes": {path.value: size for path, size in link.path_bytes.items()}}
        for link in usage.links
    ]
    devices = [dataclasses.asdict(device) for device in usage.devices]
    said: dict[str, Any] = plain({"virtual_time_ps": usage.virtual_time_ps, "devices": devices, "links": links})
    return said


def table_as_csv(table: Table) -> str:
    """Return a table as CSV: a line with the names of its columns, and one for each row; NaN is left empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = plain(table)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
