"""Half precision (IEEE 754 binary16), in which BaPipe's clusters train."""

from .number import NumberFormat

FP16 = NumberFormat("fp16", bits=16)
