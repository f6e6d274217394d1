"""Compiled kernels: what makes machine code of a function, keeps it on disk, and calls it without Numba."""
