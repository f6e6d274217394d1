"""Benchmarks of kernels, chain, simulation and codec on this machine, compared with their peers:
`emuchain bench`.
"""
