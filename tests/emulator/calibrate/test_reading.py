"""Files of measurements, by their headers, and what HPCC FPGA prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from emuchain.emulator.calibrate.reading import Kind, read_tables
from emuchain.emulator.common import InputError

HEAD = """
FPGA Setup:communication_bw520n_IEC.aocx
Summary:
Loop Length                   256 - 65536
MPI Ranks                     4
Matrix Size                   8192
Message Sizes                 2^0 - 2^20 Bytes
-------------------------------------------------------------
Measure for 1 Byte
"""
B_EFF = """          MSize        looplength          transfer               B/s
              1             65536       4.45843e-02       2.93987e+06
        1048576               256       2.73479e-02       1.96312e+10

b_eff = 7.34137e+09 B/s
Validation: SUCCESS!
"""
STREAM = """       Function Best Rate MB/s     Avg time s       Min time       Max time
            Add    6.77361e+04    1.90239e-01    1.90222e-01    1.90254e-01
       PCI read    6.46221e+03    1.99532e+00    1.99389e+00    1.99632e+00
Validation: SUCCESS!
"""
GEMM = """  norm. resid        resid       machep
    9.56957e-09    9.91821e-05    1.19209e-07
           best           mean         GFLOPS
    1.98483e+01    1.98485e+01    1.23241e+03
"""

PRINTED = {
    Kind.LINK: (
        B_EFF,
        [{"message_bytes": "1", "loop_length": "65536", "transfer_s": "4.45843e-02"}],
    ),
    Kind.MEMORY: (STREAM, [{"function": "add", "best_mbytes_per_s": "6.77361e+04", "fpgas": "4"}]),
    Kind.PRODUCTS: (GEMM, [{"matrix_size": "8192", "best_s": "1.98483e+01", "fpgas": "4"}]),
}


@pytest.mark.parametrize("kind", PRINTED)
def test_what_hpcc_fpga_prints(tmp_path: Path, kind: Kind) -> None:
    text, first = PRINTED[kind]
    path = tmp_path / "out.txt"
    path.write_text(HEAD + text)
    [table] = read_tables([path])
    assert table.kind is kind
    assert [dict(row.cells) for row in table.rows[:1]] == first
    assert len(table.rows) == (1 if kind is Kind.PRODUCTS else 2)
    line = (HEAD + text).splitlines()[table.rows[0].line - 1]
    assert next(iter(first[0].values())).lower() in line.lower() or kind is Kind.PRODUCTS
    assert {row.run for row in table.rows} == {str(path)}


HEADERS = {
    "message_bytes,message_us": Kind.LINK,
    "transfer_s,loop_length,message_bytes,anything": Kind.LINK,
    "Message_Bytes, Message_ns": Kind.LINK,
    "function,best_mbytes_per_s": Kind.MEMORY,
    "matrix_size,gflops": Kind.PRODUCTS,
    "network,layer,phase,samples,cycles": Kind.LAYERS,
    "clock_mhz,dsp_used": Kind.BITSTREAM,
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_header_says_what_a_file_holds(tmp_path: Path, header: str, delimiter: str) -> None:
    path = tmp_path / "m.csv"
    columns = len(header.split(","))
    lines = [
        "# measured on a Tuesday",
        header.replace(",", delimiter),
        delimiter.join(["1"] * columns),
        "",
    ]
    path.write_text("\r\n".join(lines))
    [table] = read_tables([path])
    assert table.kind is HEADERS[header]
    assert [row.line for row in table.rows] == [3]


def test_runs_are_those_of_the_columns(tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_text("run,message_bytes,message_ns\n1,1,700\n2,1,701\n")
    two.write_text("file,message_bytes,message_ns\na.txt,1,700\na.txt,2,701\n")
    tables = read_tables([one, two])
    assert [row.run for table in tables for row in table.rows] == [
        f"{one} 1",
        f"{one} 2",
        "a.txt",
        "a.txt",
    ]


def test_rows_may_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("board,nodes,message_bytes,message_ns\na,1,1,700\na,2,1,701\nb,1,1,702\n")
    [table] = read_tables([path], {"board": "a", "nodes": "2"})
    assert [row.line for row in table.rows] == [3]


def test_what_a_file_says_is_never_run(tmp_path: Path) -> None:
    """Formulas and code are text, which is no number."""
    path = tmp_path / "m.csv"
    path.write_text("message_bytes,message_ns\n1,__import__('os').mkdir('made')\n")
    [table] = read_tables([path])
    with pytest.raises(Exception, match="should be a number"):
        table.rows[0].number("message_ns")
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.csv"]


UNITS_IN_CELLS = {
    Kind.LINK: (
        """               MSize             looplength               time [s]                    B/s
                  64                      5            4.38310e-05            1.46015e+07
"""
    ),
    Kind.MEMORY: (
        """    Function            Best Rate           Avg time            Min time            Max time
    PCI_write           2.68152e+04 MB/s    6.36535e-02 s       6.00633e-02 s       8.45139e-02 s
    Copy                4.75583e+04 MB/s    2.32275e-02 s       2.25774e-02 s       2.55071e-02 s
"""
    ),
    Kind.PRODUCTS: (
        """     best                mean                GFLOPS
     6.50672e-03 s       1.06789e-02 s       5.15689e+00 GFLOP/s
"""
    ),
}


@pytest.mark.parametrize("kind", UNITS_IN_CELLS)
def test_what_hpcc_fpga_prints_since_2022(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "out.txt"
    path.write_text(f"Version: 2.7\n{HEAD}{UNITS_IN_CELLS[kind]}")
    [table] = read_tables([path])
    assert table.kind is kind
    numbers = {Kind.LINK: 4.3831e-05, Kind.MEMORY: 26815.2, Kind.PRODUCTS: 6.50672e-03}
    columns = {Kind.LINK: "transfer_s", Kind.MEMORY: "best_mbytes_per_s", Kind.PRODUCTS: "best_s"}
    assert table.rows[0].number(columns[kind]) == numbers[kind]
    assert len(table.rows) == (2 if kind is Kind.MEMORY else 1)
    assert table.rows[0].cells["version"] == "2.7"


OF_2020 = {
    "before its first version": """Total matrix size:   4096
         best         mean       GFLOPS
  4.27375e-01  4.27384e-01  3.21589e+02""",
    "with times of phases": """Matrix Size                   4096
           best           mean         GFLOPS
    5.68495e-01    5.68658e-01    2.41759e+02
Validation Time: 3.89921e+00 s
""",
}
"""What GEMM of 2020 printed: https://github.com/pc2/hpcc_fpga_eval, MIT."""


@pytest.mark.parametrize("name", OF_2020)
def test_what_gemm_printed_in_2020(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out.txt"
    path.write_text(OF_2020[name])
    [table] = read_tables([path])
    [row] = table.rows
    assert table.kind is Kind.PRODUCTS
    gflops = {"before its first version": 321.589, "with times of phases": 241.759}[name]
    assert 2e-9 * row.number("matrix_size") ** 3 / row.number("best_s") == pytest.approx(
        gflops, rel=1e-4
    )


@pytest.mark.parametrize(("printed", "version"), [(STREAM, "2.5"), (GEMM, "1.1")])
def test_wrong_figures_of_several_boards_are_refused(
    tmp_path: Path, printed: str, version: str
) -> None:
    """Their times were divided by the number of repetitions in place of that of FPGAs."""
    path = tmp_path / "out.txt"
    path.write_text(f"Version: {version}\n{HEAD}{printed}")
    with pytest.raises(
        InputError, match=f"{version} of 4 FPGAs divides their times by the number of repetitions"
    ):
        read_tables([path])
    path.write_text(
        f"Version: {version}\n{HEAD.replace('Ranks                     4', 'Ranks   1')}{printed}"
    )
    assert len(read_tables([path])) == 1
