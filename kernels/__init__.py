"""Numba kernels on arrays: no MPI, no devices, no files."""
