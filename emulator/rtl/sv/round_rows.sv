// Rows of whole maps, rounded to a format: each value by itself, by wires alone, or in blocks of a pixel's channels, from
// the map's first channel on, within LATENCY cycles.
module round_rows #(
    parameter formats::format_t FORMAT   = formats::FP32,
    parameter int               COLUMNS  = 1,
    parameter int               CHANNELS = 1,
    parameter int               LATENCY  = 0
) (
    input  logic                           clk,
    input  logic                           reset,
    input  logic                           in_valid,
    input  logic [COLUMNS*CHANNELS*32-1:0] in_row,
    output logic                           out_valid,
    output logic [COLUMNS*CHANNELS*32-1:0] out_row
);

    if (FORMAT.block == 17'd0) begin : g_alone
        wire unused = &{clk, reset};
        assign out_valid = in_valid;
        for (genvar i = 0; i < COLUMNS * CHANNELS; i++) begin : g_values
            on_grid #(.FORMAT(FORMAT)) value (.x(in_row[i*32+:32]), .y(out_row[i*32+:32]));
        end
    end else begin : g_blocks
        localparam int SIZE   = int'(FORMAT.block);
        localparam int BLOCKS = (CHANNELS + SIZE - 1) / SIZE;

        registers #(.WIDTH(1), .STAGES(LATENCY)) valid_waits (.clk, .d(in_valid && !reset), .q(out_valid));
        for (genvar column = 0; column < COLUMNS; column++) begin : g_columns
            logic [BLOCKS*8-1:0] scales;

            quantise_blocks #(
                .VALUES(CHANNELS), .SIZE(SIZE), .FRACTION_BITS(int'(FORMAT.fraction_bits)),
                .LEAST_EXPONENT(int'(FORMAT.least_exponent)), .LARGEST(FORMAT.largest), .FLOOR(int'(FORMAT.floor)),
                .ROUNDING(int'(FORMAT.rounding)), .LATENCY(LATENCY)
            ) pixel (
                .clk, .x(in_row[column*CHANNELS*32+:CHANNELS*32]), .words('0),
                .y(out_row[column*CHANNELS*32+:CHANNELS*32]), .scales
            );
            wire unused = &scales;
        end
    end

endmodule
