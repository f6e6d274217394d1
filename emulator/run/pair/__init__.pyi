from .simulation import PairSimulation
from .trainer import PairTrainer

__all__ = [
    "PairSimulation",
    "PairTrainer",
]
