"""Single precision (IEEE 754 binary32), as in FPDeep's Table 6."""

from .number import NumberFormat

FP32 = NumberFormat("fp32", bits=32)
