"""`python -m emuchain` is `emuchain`."""

from .emulator.commands.cli import main

main()
