"""Collectives and links of FPGAs as others measured them: ACCL+ (He et al., OSDI 2024) over RDMA
and TCP, Aurora; and all-reduces of DeepBench's.

Constants are fitted by `emuchain calibrate` to few boards or small messages; more boards, other
collectives and larger messages are predicted with them.
"""
