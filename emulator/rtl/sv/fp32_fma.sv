// y = a * b + c, fused: rounded once, to nearest, ties to even, as C's fmaf.
//
// Subnormal numbers go in and come out whole, zeros have IEEE 754's signs, every NaN comes out as 7fc00000.
// A new a, b, c may come in each clock; y follows `LATENCY` clocks later. Registers fill four cuts in this order:
// after rounding, the product, the sum, the normalised sum. More than four are plain delays; 0 is combinational.
//
// All arithmetic is on one window of 76 bits, in which the product lies still and the addend moves:
//
//     75        52 51 50 49                                            2  1  0
//     [ addend 24 ]   gap [               product 48                  ] guard      no shift
//          -> shifted right, 76 at most; what falls out at the right ends in one sticky bit
//
// An addend that would lie further left stays here: the product, below a quarter of its last place, only says which
// way inexact results lean, so where it lies in the gap's shade changes no rounding. Where bits fall out at the right, the
// product is at least 2^23, as one factor is normal, and leads the addend by three places or more; two guard
// bits are enough for a difference of one place less.
//
// Factors of a narrow format are the fp32 numbers of their values: SIGNIFICAND bits, the leading one among them, and
// zeros, which are not looked at (so a NaN is one in its upper bits). The product is 2 * SIGNIFICAND bits from bit 49 down,
// and the window ends where the least product leads its last place by 25, as 2^23 does above; all else is as it was:
//
//     fp32 24 bits: 76    bf16 8 bits: 60    without subnormal factors, 11 bits (fp16), 4 (E4M3), 3 (E5M2): 53
//
// Without SUBNORMAL no factor is one of fp32's subnormal numbers: of formats with fewer exponents none is.
module fp32_fma #(
    parameter int LATENCY     = 4,
    parameter int SIGNIFICAND = 24,  // bits of a factor's
    parameter int SUBNORMAL   = 1    // factors may be subnormal
) (
    input  logic        clk,
    input  logic [31:0] a,
    input  logic [31:0] b,
    input  logic [31:0] c,
    output logic [31:0] y
);

    localparam int FACTOR_CUT  = 24 - SIGNIFICAND;  // bits that are zero
    localparam int PRODUCT_CUT = 2 * FACTOR_CUT;
    localparam int LEAST       = SUBNORMAL != 0 ? SIGNIFICAND - 1 : 2 * SIGNIFICAND - 2;  // place of its leading one
    localparam int GUARD       = LEAST < 25 ? 25 - LEAST : 0;
    localparam int WINDOW_CUT  = 50 - 2 * SIGNIFICAND - GUARD;

    logic [31:0] a_kept, b_kept;

    assign a_kept = (a >> FACTOR_CUT) << FACTOR_CUT;
    assign b_kept = (b >> FACTOR_CUT) << FACTOR_CUT;

    if (LATENCY == 0) begin : g_at_once
        wire unused = clk;
        assign y = fp32::fused(a_kept, b_kept, c, 6'(WINDOW_CUT));
    end else begin : g_stages
        localparam int AFTER_ROUND     = LATENCY < 4 ? 1 : LATENCY - 3;
        localparam int AFTER_PRODUCT   = LATENCY > 1 ? 1 : 0;
        localparam int AFTER_SUM       = LATENCY > 2 ? 1 : 0;
        localparam int AFTER_NORMALISE = LATENCY > 3 ? 1 : 0;
        localparam int PRODUCT_BITS    = fp32::MULTIPLIED - PRODUCT_CUT;
        localparam int SUM_BITS        = fp32::ADDED - WINDOW_CUT;

        logic [fp32::MULTIPLIED-1:0] multiplied_now, multiplied_held;
        logic [fp32::ADDED-1:0] added_now, added_held;
        logic [PRODUCT_BITS-1:0] product_held;
        logic [SUM_BITS-1:0] sum_held;
        logic [fp32::NORMALISED-1:0] normalised_now, normalised_held;
        logic [31:0] result;

        assign multiplied_now = fp32::multiplied(a_kept, b_kept, c);
        registers #(.WIDTH(PRODUCT_BITS), .STAGES(AFTER_PRODUCT)) after_product (
            .clk, .d(PRODUCT_BITS'(multiplied_now >> PRODUCT_CUT)), .q(product_held)
        );
        assign multiplied_held = fp32::MULTIPLIED'(product_held) << PRODUCT_CUT;
        assign added_now = fp32::added(multiplied_held, 6'(WINDOW_CUT));
        registers #(.WIDTH(SUM_BITS), .STAGES(AFTER_SUM)) after_sum (
            .clk, .d(SUM_BITS'(added_now >> WINDOW_CUT)), .q(sum_held)
        );
        assign added_held = fp32::ADDED'(sum_held) << WINDOW_CUT;
        assign normalised_now = fp32::normalised(added_held);
        registers #(.WIDTH(fp32::NORMALISED), .STAGES(AFTER_NORMALISE)) after_normalise (
            .clk, .d(normalised_now), .q(normalised_held)
        );
        assign result = fp32::rounded(normalised_held);
        registers #(.WIDTH(32), .STAGES(AFTER_ROUND)) after_round (.clk, .d(result), .q(y));
    end

endmodule
