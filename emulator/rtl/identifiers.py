"""Names as SystemVerilog and C++ have them: identifiers of layers, and text of others in comments."""

from __future__ import annotations

import functools
import hashlib
import re

from ..common import one_line
from .verilator import sources

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]{0,40}(_[0-9]{1,9}){0,3}")
"""Names that no name made of another one equals: those end in an underscore and a word."""

_SYSTEM_VERILOG = """
accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind bins
binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking cmos config const
constraint context continue cover covergroup coverpoint cross deassign default defparam design disable dist do edge
else end endcase endchecker endclass endclocking endconfig endfunction endgenerate endgroup endinterface endmodule
endpackage endprimitive endprogram endproperty endspecify endsequence endtable endtask enum event eventually expect
export extends extern final first_match for force foreach forever fork forkjoin function generate genvar global highz0
highz1 if iff ifnone ignore_bins illegal_bins implements implies import incdir include initial inout input inside
instance int integer interconnect interface intersect join join_any join_none large let liblist library local
localparam logic longint macromodule matches medium modport module nand negedge nettype new nexttime nmos nor
noshowcancelled not notif0 notif1 null or output package packed parameter pmos posedge primitive priority program
property protected pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase
randsequence rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1
s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled signed small
soft solve specify specparam static string strong strong0 strong1 struct super supply0 supply1 sync_accept_on
sync_reject_on table tagged task this throughout time timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand
trior trireg type typedef union unique unique0 unsigned until until_with untyped use uwire var vectored virtual void
wait wait_order wand weak weak0 weak1 while wildcard wire with within wor xnor xor
"""
_CPP = """
alignas alignof asm auto bool catch char concept consteval constexpr constinit decltype delete double explicit false
float friend goto inline long main mutable namespace noexcept nullptr operator private public register requires short
sizeof switch template throw true try typeid typename using volatile
"""
_OWN = """
batch clk decay device done errors images in labels limit loss module momentum of out outputs overrun overruns path port
rate reads reset rst schedule settings share take updated
"""
"""Of the top modules; `device0` is one."""
_RESERVED = frozenset(f"{_SYSTEM_VERILOG} {_CPP} {_OWN}".split())


@functools.cache
def _of_modules() -> frozenset[str]:
    """Return all words of the modules that instances are of: a name hides a signal of the same one."""
    return frozenset(
        word for path in sources() for word in re.findall(r"\w+", path.read_text(encoding="utf-8").lower())
    )


def _is_free(name: str) -> bool:
    word = name.lower()
    return word not in _RESERVED and word not in _of_modules() and not re.fullmatch(r"device\d+", word)


def identifier(name: str) -> str:
    """Return a layer's name as an identifier, another one for each name; a plain name stays as it is.

    What is no plain name, or a word of a language or of a module, gets a digest of it behind: `a-b` is not `a_b`.
    """
    if _PLAIN.fullmatch(name) and _is_free(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9]", "_", name)[:40].strip("_") or "layer"
    plain = plain if plain[0].isalpha() else f"layer_{plain}"
    return f"{plain}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def comment(text: str) -> str:
    """Return text of others for a comment of one line, behind other words: tools obey some that come first."""
    return one_line(text)
