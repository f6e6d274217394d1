"""`python -m emuchain` is `emuchain`."""

from .emulator.cli import main

main()
