"""Benchmarks: how fast kernels, chain, simulation and codec are here, beside their peers."""
