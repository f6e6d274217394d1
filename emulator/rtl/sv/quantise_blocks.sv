// VALUES fp32 numbers rounded in blocks of SIZE, from the first on, each with a scale; the last may be shorter. Bit for
// bit as `on_blocks` of kernels/quantise: the largest number of a block says its scale, by which the grid of all its
// elements is scaled; for parameters see `quantise` and `block_scale`.
//
// New numbers may come in each clock; y follows `LATENCY` clocks later. The first cut with registers is after the results,
// the second after the scales; more than two are plain delays, 0 is combinational.
module quantise_blocks #(
    parameter int          VALUES         = 32,
    parameter int          SIZE           = 32,
    parameter int          FRACTION_BITS  = 3,
    parameter int          LEAST_EXPONENT = -6,
    parameter logic [31:0] LARGEST        = 32'h43e0_0000,
    parameter int          FLOOR          = 0,
    parameter int          ROUNDING       = 0,
    parameter int          LATENCY        = 0,
    parameter int          BLOCKS         = (VALUES + SIZE - 1) / SIZE
) (
    input  logic                 clk,
    input  logic [VALUES*32-1:0] x,
    input  logic [VALUES*32-1:0] words,  // random, for stochastic rounding alone
    output logic [VALUES*32-1:0] y,
    output logic [BLOCKS*8-1:0]  scales  // as E8M0: biased by 127, 255 where the block is NaN
);

    localparam int AFTER_SCALE = LATENCY > 1 ? 1 : 0;
    localparam int AFTER_ROUND = LATENCY - AFTER_SCALE;

    logic [VALUES*32-1:0] x_held, words_held, rounded;
    logic [BLOCKS*9-1:0] exponents, exponents_held;
    logic [BLOCKS-1:0] is_nan, is_nan_held;
    logic [BLOCKS*8-1:0] codes;

    for (genvar block = 0; block < BLOCKS; block++) begin : g_blocks
        localparam int COUNT = block < BLOCKS - 1 ? SIZE : VALUES - block * SIZE;

        block_scale #(.SIZE(COUNT), .LARGEST(LARGEST), .FLOOR(FLOOR)) scale (
            .x(x[block*SIZE*32+:COUNT*32]), .exponent(exponents[block*9+:9]), .is_nan(is_nan[block])
        );
        assign codes[block*8+:8] = is_nan_held[block] ? 8'd255 : exponents_held[block*9+:8] + 8'd127;
    end

    // Registers of their own for what has 32 bits: simulators move it word by word.
    registers #(.WIDTH(VALUES * 32), .STAGES(AFTER_SCALE)) x_after_scale (.clk, .d(x), .q(x_held));
    registers #(.WIDTH(VALUES * 32), .STAGES(AFTER_SCALE)) words_after_scale (.clk, .d(words), .q(words_held));
    registers #(.WIDTH(BLOCKS * 10), .STAGES(AFTER_SCALE)) after_scale (
        .clk, .d({exponents, is_nan}), .q({exponents_held, is_nan_held})
    );

    for (genvar i = 0; i < VALUES; i++) begin : g_values
        logic [31:0] number;

        quantise #(
            .FRACTION_BITS(FRACTION_BITS), .LEAST_EXPONENT(LEAST_EXPONENT), .LARGEST(LARGEST), .ROUNDING(ROUNDING),
            .SCALED(1)
        ) onto_grid (
            .x(x_held[i*32+:32]), .word(words_held[i*32+:32]), .exponent(exponents_held[i/SIZE*9+:9]), .y(number)
        );
        assign rounded[i*32+:32] = is_nan_held[i/SIZE] ? 32'h7fc0_0000 : number;
    end

    registers #(.WIDTH(VALUES * 32), .STAGES(AFTER_ROUND)) after_round (.clk, .d(rounded), .q(y));
    registers #(.WIDTH(BLOCKS * 8), .STAGES(AFTER_ROUND)) scales_after_round (.clk, .d(codes), .q(scales));

endmodule
