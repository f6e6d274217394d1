"""Measured hardware that no paper of ours touches: FPGA boards and links (HPCC FPGA), pipelines on
GPUs, large models.

Constants are fitted to some of the rows, by `emuchain calibrate` where it can; all other rows are
predicted with them.
"""
