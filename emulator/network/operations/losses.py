"""What closes networks whose targets are numbers, in place of softmax."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..operation import Closing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mse(Closing):
    """Mean of squared errors, for numbers of any size."""

    vocabulary_parallel: ClassVar[bool] = False  # type: ignore[misc]  # of softmax alone
    type = "mse"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bce(Closing):
    """Binary cross-entropy: each output is the logit of a label of its own, or, behind a sigmoid,
    its probability.
    """

    vocabulary_parallel: ClassVar[bool] = False  # type: ignore[misc]  # of softmax alone
    type = "bce"
