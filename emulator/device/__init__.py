"""One emulated FPGA: the coroutine, its numerics, and its memories under FPDeep's names."""
