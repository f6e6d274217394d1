"""`python -m emuchain.papers COMMAND` is `emuchain COMMAND`, with the papers' own extensions:
codecs that INCEPTIONN compares with, which only its claims and runs for them use.
"""

from ..emulator.commands import main
from ..kernels import register
from .inceptionn.truncation import Truncation

register(Truncation)
main()
