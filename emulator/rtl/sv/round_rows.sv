// Rows of whole maps, rounded to a format: each value by itself, by wires alone, or in blocks of a pixel's channels, from
// the map's first channel on, within LATENCY cycles. The first SUMS channels stay as they are: others round them.
module round_rows #(
    parameter formats::format_t FORMAT   = formats::FP32,
    parameter int               COLUMNS  = 1,
    parameter int               CHANNELS = 1,
    parameter int               SUMS     = 0,
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
            if (i % CHANNELS < SUMS) begin : g_sum
                assign out_row[i*32+:32] = in_row[i*32+:32];
            end else begin : g_whole
                on_grid #(.FORMAT(FORMAT)) value (.x(in_row[i*32+:32]), .y(out_row[i*32+:32]));
            end
        end
    end else begin : g_blocks
        localparam int SIZE   = int'(FORMAT.block);
        localparam int WHOLE  = CHANNELS - SUMS;
        localparam int BLOCKS = (WHOLE + SIZE - 1) / SIZE;

        registers #(.WIDTH(1), .STAGES(LATENCY)) valid_waits (.clk, .d(in_valid && !reset), .q(out_valid));
        for (genvar column = 0; column < COLUMNS; column++) begin : g_columns
            localparam int AT = (column * CHANNELS + SUMS) * 32;

            logic [BLOCKS*8-1:0] scales;

            if (SUMS > 0) begin : g_sums
                registers #(.WIDTH(SUMS * 32), .STAGES(LATENCY)) wait_too (
                    .clk, .d(in_row[column*CHANNELS*32+:SUMS*32]), .q(out_row[column*CHANNELS*32+:SUMS*32])
                );
            end
            quantise_blocks #(
                .VALUES(WHOLE), .SIZE(SIZE), .FRACTION_BITS(int'(FORMAT.fraction_bits)),
                .LEAST_EXPONENT(int'(FORMAT.least_exponent)), .LARGEST(FORMAT.largest), .FLOOR(int'(FORMAT.floor)),
                .ROUNDING(int'(FORMAT.rounding)), .LATENCY(LATENCY)
            ) pixel (
                .clk, .x(in_row[AT+:WHOLE*32]), .words('0), .y(out_row[AT+:WHOLE*32]), .scales
            );
            wire unused = &scales;
        end
    end

endmodule
