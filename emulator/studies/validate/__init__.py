"""A paper's figures, run: each claim is measured with the emulator's own functions, and judged."""
