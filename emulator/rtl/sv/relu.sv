// A ReLU of the SFU (FPDeep, section 5.3), both ways; wires, but for a bit for each value that passed, until its error
// returns. A NaN stays a NaN.
module relu #(
    parameter int VALUES = 1,  // of a row
    parameter int DEPTH  = 1   // rows on the way
) (
    input  logic                 clk,
    input  logic                 reset,
    input  logic                 in_valid,
    input  logic [VALUES*32-1:0] in_row,
    output logic                 out_valid,
    output logic [VALUES*32-1:0] out_row,
    input  logic                 error_valid,
    input  logic [VALUES*32-1:0] error_row,
    output logic                 error_out_valid,
    output logic [VALUES*32-1:0] error_out_row,
    output logic                 overrun
);

    logic [VALUES-1:0] above, passed;
    logic there;

    row_fifo #(.WIDTH(VALUES), .DEPTH(DEPTH)) passes (
        .clk, .reset, .in_valid, .in_row(above), .valid(there), .row(passed), .take(error_valid), .overrun
    );
    wire unused = there;
    assign out_valid = in_valid;
    assign error_out_valid = error_valid;

    for (genvar i = 0; i < VALUES; i++) begin : g_values
        logic [31:0] x;
        logic is_nan;

        assign x = in_row[i*32+:32];
        assign is_nan = x[30:0] > 31'h7f80_0000;
        assign above[i] = !x[31] && x[30:0] != 31'd0 && !is_nan;
        assign out_row[i*32+:32] = above[i] || is_nan ? x : 32'd0;
        assign error_out_row[i*32+:32] = passed[i] ? error_row[i*32+:32] : 32'd0;
    end

endmodule
