"""The messages of the dry run, which carry the numbers of samples in place of maps."""

from __future__ import annotations

import collections


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
