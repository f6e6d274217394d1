"""The keys of a run by what they are about: the tables of a TOML file, and the headings of
`--help`.

A file may have a key at its top or in its table; flags, Python and results have all keys at the
top, as no two have one name:

    batch = 32                          [training]
    devices = 8                         batch = 32          emuchain.train(batch=32, devices=8)
                                        [chain]
                                        devices = 8
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ..common import InputError, did_you_mean
from .other_names import ELSEWHERE

_TABLES = {
    "model": "network input time_steps init new_layers freeze lora seed",
    "dataset": """data samples test_samples resize crop channels mean std augment skip_broken
        test_share split_seed target_columns text_samples tokenizer
        masked_share""",
    "training": """epochs patience batch micro_batch optimizer learning_rate momentum beta1 beta2
        epsilon weight_decay clip_norm lr_schedule lr_warm_up label_smoothing loss class_weights""",
    "chain": "devices schedule warm_up chunks stages cut recompute balancing",
    "replication": """replicas exchange groups zero compress error_feedback compress_weights
        compress_ratio""",
    "hardware": """cluster changes faults engines transport precision memory rows_at_once padding
        rtl_device throttle""",
    "output": "out checkpoint checkpoint_every resume log progress stall_timeout",
}
GROUPS = {group: tuple(keys.split()) for group, keys in _TABLES.items()}
"""The keys of each table. Its name is that of no key, so that `data = "shapes"` may stay at the
top.
"""

_GROUP_OF = {key: group for group, keys in GROUPS.items() for key in keys}


def ungrouped(content: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return the keys of a run from a TOML file, those of its tables at the top.

    Raises:
        InputError: a table is unknown, or none; or a key is in another's table, or given twice.
    """
    keys = {key: value for key, value in content.items() if key not in GROUPS}
    for name, value in keys.items():
        if isinstance(value, Mapping) and name not in _GROUP_OF:
            known = ", ".join(f"[{group}]" for group in GROUPS)
            hint = did_you_mean(name, [*GROUPS, *_GROUP_OF], {}, ELSEWHERE)
            raise InputError(f"{file}: unknown table [{name}]; {hint}known tables: {known}")
    tables = {group: content[group] for group in GROUPS if group in content}
    for group, table in tables.items():
        if not isinstance(table, Mapping):
            example = f"[{group}] with keys such as `{GROUPS[group][0]}`"
            raise InputError(f"{file}: `{group}` = {table!r}: should be a table, {example}")
    pairs = ((group, key) for group, table in tables.items() for key in table)
    for group, key in pairs:
        if _GROUP_OF.get(key, group) != group:
            raise InputError(
                f"{file}: `{group}.{key}`: is a key of [{_GROUP_OF[key]}]; move it there, or to"
                " the top"
            )
        if key in keys:
            raise InputError(
                f"{file}: `{key}` is given twice, at the top and in [{group}]; leave one out"
            )
    return keys | dict(itertools.chain.from_iterable(table.items() for table in tables.values()))
