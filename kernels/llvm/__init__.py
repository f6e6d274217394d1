"""What compiled kernels are emitted from as LLVM IR: vectors, fused multiply-adds, copies at plain addresses."""
