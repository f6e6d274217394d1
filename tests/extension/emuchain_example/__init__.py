"""An extension of each kind; what stands here is what emuchain finds, through the entry point in
pyproject.toml.
"""

from .halves import HALF_WIDE, Halves
from .hello import hello
from .mesh import Mesh
from .one_each import ONE_EACH
from .relay import Relay
from .root import Root
from .scaled import Scaled
from .slow_signum import SlowSignum

__all__ = [
    "HALF_WIDE",
    "ONE_EACH",
    "Halves",
    "Mesh",
    "Relay",
    "Root",
    "Scaled",
    "SlowSignum",
    "hello",
]
