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
module fp32_fma #(
    parameter int LATENCY = 4
) (
    input  logic        clk,
    input  logic [31:0] a,
    input  logic [31:0] b,
    input  logic [31:0] c,
    output logic [31:0] y
);

    if (LATENCY == 0) begin : g_at_once
        wire unused = clk;
        assign y = fp32::fused(a, b, c);
    end else begin : g_stages
        localparam int AFTER_ROUND     = LATENCY < 4 ? 1 : LATENCY - 3;
        localparam int AFTER_PRODUCT   = LATENCY > 1 ? 1 : 0;
        localparam int AFTER_SUM       = LATENCY > 2 ? 1 : 0;
        localparam int AFTER_NORMALISE = LATENCY > 3 ? 1 : 0;

        logic [fp32::MULTIPLIED-1:0] multiplied_now, multiplied_held;
        logic [fp32::ADDED-1:0] added_now, added_held;
        logic [fp32::NORMALISED-1:0] normalised_now, normalised_held;
        logic [31:0] result;

        assign multiplied_now = fp32::multiplied(a, b, c);
        registers #(.WIDTH(fp32::MULTIPLIED), .STAGES(AFTER_PRODUCT)) after_product (
            .clk, .d(multiplied_now), .q(multiplied_held)
        );
        assign added_now = fp32::added(multiplied_held);
        registers #(.WIDTH(fp32::ADDED), .STAGES(AFTER_SUM)) after_sum (.clk, .d(added_now), .q(added_held));
        assign normalised_now = fp32::normalised(added_held);
        registers #(.WIDTH(fp32::NORMALISED), .STAGES(AFTER_NORMALISE)) after_normalise (
            .clk, .d(normalised_now), .q(normalised_held)
        );
        assign result = fp32::rounded(normalised_held);
        registers #(.WIDTH(32), .STAGES(AFTER_ROUND)) after_round (.clk, .d(result), .q(y));
    end

endmodule
