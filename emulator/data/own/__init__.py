"""Data of any kind that users bring: inputs and targets as arrays, in files, tables, and data sets
of other libraries.
"""

from .objects import as_data, as_one
from .pictures import ArrayPictures, Samples
from .values import (
    INPUTS,
    TARGETS,
    TEST_INPUTS,
    TEST_TARGETS,
    ValuePictures,
    as_shape,
    own_dataset,
    takes_shape,
)

__all__ = [
    "INPUTS",
    "TARGETS",
    "TEST_INPUTS",
    "TEST_TARGETS",
    "ArrayPictures",
    "Samples",
    "ValuePictures",
    "as_data",
    "as_one",
    "as_shape",
    "own_dataset",
    "takes_shape",
]
