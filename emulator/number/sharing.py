"""What of a parameter's arrays replicas share out: ZeRO (Rajbhandari et al., SC 2020, sections 3
and 5).

    stage       weights   gradients   states, and a master copy
    0           whole     whole       whole
    1, P_os     whole     whole       a share
    2, P_os+g   whole     a share     a share
    3, P_os+g+p a share   a share     a share
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Sharing:
    """Stage `zero` among `replicas`, each of which keeps an equal share."""

    zero: int = 0
    replicas: int = 1

    @property
    def states(self) -> int:
        """Into how many shares states and master copies are divided."""
        return self.replicas if self.zero >= 1 else 1

    @property
    def gradients(self) -> int:
        """Into how many shares gradients are divided."""
        return self.replicas if self.zero >= 2 else 1

    @property
    def weights(self) -> int:
        """Into how many shares weights are divided."""
        return self.replicas if self.zero >= 3 else 1


UNSHARED = Sharing()
"""Each replica keeps all."""
