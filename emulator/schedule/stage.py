"""A stage in the dry run: the samples that it has done and that have come, and the versions that its F used.

Messages carry the numbers of samples in place of maps.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

from .action import PASSES, Action, Kind, MicroBatch


class Messages:
    """The samples that a stage's neighbour has sent and the stage has not taken yet, in the order sent."""

    def __init__(self) -> None:
        self.spans: collections.deque[tuple[int, int, int]] = collections.deque()
        """Micro-batch, begin and end; spans that follow on one another in a micro-batch are one."""

    def send(self, index: int, begin: int, end: int) -> None:
        """Add a span of a micro-batch."""
        if self.spans:
            of, first, last = self.spans[-1]
            if of == index and last == begin:
                self.spans[-1] = of, first, end
                return
        self.spans.append((index, begin, end))

    def take(self, index: int, begin: int, end: int) -> bool:
        """Take a span of a micro-batch, and return whether all of it has arrived; otherwise take nothing.

        Raises:
            LookupError: the next message is of other samples; with a phrase that says of which.
        """
        if not self.spans:
            return False
        of, first, last = self.spans[0]
        if of == index and first == begin:
            if last > end:
                self.spans[0] = of, end, last
            elif last == end:
                self.spans.popleft()
            elif len(self.spans) == 1:
                return False
            else:
                of, first, _ = self.spans[1]
            if last >= end:
                return True
        raise LookupError(f"micro-batch {of}" + (f", from its sample {first}" if first else ""))


class Stage:
    """Chunk `number // devices` of device `number % devices`, with a queue of messages from each neighbour.

    What is wrong is raised as a LookupError, with a phrase that follows the name of the action.
    """

    def __init__(self, number: int, device: int, micro_batches: Sequence[MicroBatch]) -> None:
        self.number, self.device = number, device
        self.left: Stage | None = None
        self.right: Stage | None = None
        self.messages = {Kind.FORWARD: Messages(), Kind.BACKWARD: Messages()}
        self._micro_batches = micro_batches
        self._done = {kind: [0] * len(micro_batches) for kind in PASSES}  # samples of each micro-batch
        self._used: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)  # (end of span, version) of F

    def source(self, kind: Kind) -> Stage | None:
        """Return the stage whose message an action of this kind needs."""
        return self._neighbours(kind)[0]

    def _neighbours(self, kind: Kind) -> tuple[Stage | None, Stage | None]:
        """Return the stage whose message an action needs, and the one that gets what it makes."""
        if kind is Kind.FORWARD:
            return self.left, self.right
        return (self.right, self.left) if kind is Kind.BACKWARD else (None, None)

    def step(self, action: Action) -> tuple[bool, Stage | None]:
        """Do an action if its message is there; return whether it was, and the stage that gets what it makes."""
        kind, index = action.kind, action.index
        begin, end = action.span or (0, self._micro_batches[index].samples)
        source, to = self._neighbours(kind)
        if source is not None:
            try:
                if not self.messages[kind].take(index, begin, end):
                    return False, None
            except LookupError as error:
                why = f"does not follow the order of its neighbour, whose next message is of {error}"
                raise LookupError(why) from None
        if to is not None:
            to.messages[kind].send(index, begin, end)
        self._compute(action, begin, end)
        return True, to

    def _compute(self, action: Action, begin: int, end: int) -> None:
        """Note the samples of an action, which must follow on those done and have been through the kind before."""
        index, done = action.index, self._done[action.kind]
        if done[index] > begin:
            raise LookupError("is done twice")
        if done[index] < begin:
            raise LookupError(f"leaves out samples from {done[index]} on")
        before = action.kind.before
        if before is not None and self._done[before][index] < end:
            raise LookupError(f"comes before {before.value}{index}")
        done[index] = end
        if action.kind is Kind.FORWARD and action.version is not None:
            self._used[index].append((end, action.version))

    def version_of_forward(self, action: Action) -> int:
        """Return the version that F of an action's last sample used."""
        _, end = self._samples(action)
        return next(version for of_end, version in self._used[action.index] if of_end >= end)

    def lacks(self, kind: Kind, index: int) -> bool:
        """Return whether samples of a micro-batch are still to be done."""
        return self._done[kind][index] < self._micro_batches[index].samples

    def _samples(self, action: Action) -> tuple[int, int]:
        return action.span or (0, self._micro_batches[action.index].samples)
