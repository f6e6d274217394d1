"""What a stage takes for one micro-batch: times, messages, memory."""

from __future__ import annotations

import dataclasses

from ..common import InputError


@dataclasses.dataclass(frozen=True)
class StageCosts:
    """The costs of a stage for one micro-batch.

    `backward_ps` is all of B, EB and PG; `pg_ps` is the part of it that PG takes, None if it is not known.
    `transfer_ps` is the time of a message of features from this stage to the next; `errors_ps` that of the errors that
    come back, None if it is the same. `feature_bytes` are kept from F to B, `parameter_bytes` are the weights. A
    micro-batch has `samples` samples of `rows` rows each, which matter where messages are streamed: a row then takes an
    equal part of each time, rounded up to whole ps.

    Raises:
        InputError: a time or a size is negative, F and B take no time, or there are no rows.
    """

    forward_ps: int
    backward_ps: int
    pg_ps: int | None = None
    transfer_ps: int = 0
    errors_ps: int | None = None
    feature_bytes: int = 0
    parameter_bytes: int = 0
    samples: int = 1
    rows: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and value < 0:
                raise InputError(f"`{field.name}` = {value}: must not be negative")
        if self.forward_ps + self.backward_ps == 0:
            raise InputError("`forward_ps` = `backward_ps` = 0: a stage must take time")
        if not self.samples or not self.rows:
            raise InputError(f"`samples` = {self.samples}, `rows` = {self.rows}: must be at least 1")
        if self.pg_ps is not None and self.pg_ps > self.backward_ps:
            raise InputError(f"`pg_ps` = {self.pg_ps}: is part of `backward_ps` = {self.backward_ps}")

    @property
    def work_ps(self) -> int:
        """Time of F and B, of which each has all of the device."""
        return self.forward_ps + self.backward_ps

    @property
    def eb_ps(self) -> int:
        """The part of B that EB takes.

        Raises:
            InputError: it is not known.
        """
        return self.backward_ps - self.known_pg_ps

    @property
    def known_pg_ps(self) -> int:
        """The part of B that PG takes.

        Raises:
            InputError: it is not known.
        """
        if self.pg_ps is None:
            raise InputError("`pg_ps` = None: a split backward needs the part of B that PG takes")
        return self.pg_ps

    @property
    def sent_errors_ps(self) -> int:
        """Time of a message of errors from the next stage to this one."""
        return self.transfer_ps if self.errors_ps is None else self.errors_ps
