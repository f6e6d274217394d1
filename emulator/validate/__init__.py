"""A paper's figures, run: each claim is measured with the emulator's own functions and judged by what it says.

A topic has a file, which says how each of its claims is measured; measures know nothing of what was published. The
claims are data (claims/*.toml), with what each expects of its measure, or why it is not run.
"""

from .claim import Claim, Expect, load_claims, papers
from .judge import Verdict
from .run import Result, select, validate

__all__ = ["Claim", "Expect", "Result", "Verdict", "load_claims", "papers", "select", "validate"]
