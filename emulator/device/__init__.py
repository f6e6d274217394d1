"""One emulated FPGA: its program, its ports, and the numbers that it computes."""
