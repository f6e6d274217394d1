"""Weights from files and into files: results, checkpoints, safetensors, each checked against the network."""

from .read import Found, found_of, read_found, read_weights
from .safetensors_file import safetensors_image
from .write import WeightsFile

__all__ = ["Found", "WeightsFile", "found_of", "read_found", "read_weights", "safetensors_image"]
