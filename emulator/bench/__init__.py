"""Benchmarks: how fast the kernels and the whole chain are on this machine, beside its peak and beside PyTorch."""
