// Rows of whole maps, rounded to a format: each value by itself, by wires alone, or in blocks of a pixel's channels, from
// the map's first channel on, within LATENCY cycles. The first SUMS channels stay as they are: others round them.
// By chance, rows wait for their words (`row_words`).
module round_rows #(
    parameter formats::format_t FORMAT   = formats::FP32,
    parameter int               COLUMNS  = 1,
    parameter int               CHANNELS = 1,
    parameter int               SUMS     = 0,
    parameter int               LATENCY  = 0,
    // By chance.
    parameter int               FIRST    = 0,  // the first channel that is rounded, in the whole map
    parameter int               APART    = CHANNELS,
    parameter int               ROWS     = 1,
    parameter logic [31:0]      STREAM   = 32'd0,
    parameter logic [63:0]      SEED     = 64'd0,
    parameter int               UNITS    = 1,
    parameter int               DEPTH    = 2
) (
    input  logic                           clk,
    input  logic                           reset,
    input  logic                           in_valid,
    input  logic [COLUMNS*CHANNELS*32-1:0] in_row,
    output logic                           out_valid,
    output logic [COLUMNS*CHANNELS*32-1:0] out_row,
    output logic                           overrun
);

    localparam int WHOLE = CHANNELS - SUMS;

    logic valid;
    logic [COLUMNS*CHANNELS*32-1:0] row;
    logic [COLUMNS*WHOLE*32-1:0] words;

    if (FORMAT.rounding == 2'd3) begin : g_by_chance
        logic there, ready;

        row_fifo #(.WIDTH(COLUMNS * CHANNELS * 32), .DEPTH(DEPTH)) waiting (
            .clk, .reset, .in_valid, .in_row, .valid(there), .row, .take(valid), .overrun
        );
        row_words #(
            .COLUMNS(COLUMNS), .CHANNELS(WHOLE), .FIRST(FIRST), .APART(APART), .ROWS(ROWS), .STREAM(STREAM),
            .SEED(SEED), .UNITS(UNITS)
        ) draws (
            .clk, .reset, .take(valid), .ready, .words
        );
        assign valid = there && ready;
    end else begin : g_at_once
        assign valid = in_valid;
        assign row = in_row;
        assign words = '0;
        assign overrun = 1'b0;
    end

    if (FORMAT.block == 17'd0) begin : g_alone
        wire unused = &{clk, reset};
        assign out_valid = valid;
        for (genvar i = 0; i < COLUMNS * CHANNELS; i++) begin : g_values
            if (i % CHANNELS < SUMS) begin : g_sum
                assign out_row[i*32+:32] = row[i*32+:32];
            end else begin : g_whole
                on_grid #(.FORMAT(FORMAT)) value (
                    .x(row[i*32+:32]), .word(words[(i/CHANNELS*WHOLE+i%CHANNELS-SUMS)*32+:32]), .y(out_row[i*32+:32])
                );
            end
        end
    end else begin : g_blocks
        localparam int SIZE   = int'(FORMAT.block);
        localparam int BLOCKS = (WHOLE + SIZE - 1) / SIZE;

        registers #(.WIDTH(1), .STAGES(LATENCY)) valid_waits (.clk, .d(valid && !reset), .q(out_valid));
        for (genvar column = 0; column < COLUMNS; column++) begin : g_columns
            localparam int AT = (column * CHANNELS + SUMS) * 32;

            logic [BLOCKS*8-1:0] scales;

            if (SUMS > 0) begin : g_sums
                registers #(.WIDTH(SUMS * 32), .STAGES(LATENCY)) wait_too (
                    .clk, .d(row[column*CHANNELS*32+:SUMS*32]), .q(out_row[column*CHANNELS*32+:SUMS*32])
                );
            end
            quantise_blocks #(
                .VALUES(WHOLE), .SIZE(SIZE), .FRACTION_BITS(int'(FORMAT.fraction_bits)),
                .LEAST_EXPONENT(int'(FORMAT.least_exponent)), .LARGEST(FORMAT.largest), .FLOOR(int'(FORMAT.floor)),
                .ROUNDING(int'(FORMAT.rounding)), .LATENCY(LATENCY)
            ) pixel (
                .clk, .x(row[AT+:WHOLE*32]), .words(words[column*WHOLE*32+:WHOLE*32]), .y(out_row[AT+:WHOLE*32]), .scales
            );
            wire unused = &scales;
        end
    end

endmodule
