"""The edge between emuchain and people: one module for each command of `emuchain.emulator.cli`."""
