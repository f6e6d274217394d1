// Two streams of rows, joined column by column: LEFT channels, then RIGHT ones. A joined row leaves when both are there:
// outputs of OCP slices on path 2, errors of ICP slices on path 4 (FPDeep, section 5.1).
module row_join #(
    parameter int COLUMNS = 1,
    parameter int LEFT    = 1,
    parameter int RIGHT   = 1,
    parameter int DEPTH   = 2
) (
    input  logic                               clk,
    input  logic                               reset,
    input  logic                               left_valid,
    input  logic [COLUMNS*LEFT*32-1:0]         left_row,
    input  logic                               right_valid,
    input  logic [COLUMNS*RIGHT*32-1:0]        right_row,
    output logic                               out_valid,
    output logic [COLUMNS*(LEFT+RIGHT)*32-1:0] out_row,
    output logic                               overrun
);

    logic left_there, right_there, left_overrun, right_overrun;
    logic [COLUMNS*LEFT*32-1:0] left;
    logic [COLUMNS*RIGHT*32-1:0] right;

    row_fifo #(.WIDTH(COLUMNS * LEFT * 32), .DEPTH(DEPTH)) from_left (
        .clk, .reset, .in_valid(left_valid), .in_row(left_row), .valid(left_there), .row(left), .take(out_valid),
        .overrun(left_overrun)
    );
    row_fifo #(.WIDTH(COLUMNS * RIGHT * 32), .DEPTH(DEPTH)) from_right (
        .clk, .reset, .in_valid(right_valid), .in_row(right_row), .valid(right_there), .row(right), .take(out_valid),
        .overrun(right_overrun)
    );
    assign out_valid = left_there && right_there;
    assign overrun = left_overrun || right_overrun;

    for (genvar column = 0; column < COLUMNS; column++) begin : g_columns
        assign out_row[column*(LEFT+RIGHT)*32+:(LEFT+RIGHT)*32] =
            {right[column*RIGHT*32+:RIGHT*32], left[column*LEFT*32+:LEFT*32]};
    end

endmodule
