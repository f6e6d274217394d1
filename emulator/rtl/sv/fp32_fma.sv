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

    localparam int AFTER_ROUND     = LATENCY < 4 ? (LATENCY > 0 ? 1 : 0) : LATENCY - 3;
    localparam int AFTER_PRODUCT   = LATENCY > 1 ? 1 : 0;
    localparam int AFTER_SUM       = LATENCY > 2 ? 1 : 0;
    localparam int AFTER_NORMALISE = LATENCY > 3 ? 1 : 0;

    // ---- Unpack. A subnormal has the exponent of the smallest normal numbers, and no leading one.

    logic [23:0] a_significand, b_significand, c_significand;
    logic [9:0] a_exponent, b_exponent, c_exponent;  // biased by 127, from 1
    logic a_is_zero, b_is_zero, a_is_infinite, b_is_infinite, c_is_infinite, any_is_nan;

    assign a_significand = {a[30:23] != 8'd0, a[22:0]};
    assign b_significand = {b[30:23] != 8'd0, b[22:0]};
    assign c_significand = {c[30:23] != 8'd0, c[22:0]};
    assign a_exponent = a[30:23] == 8'd0 ? 10'd1 : {2'b0, a[30:23]};
    assign b_exponent = b[30:23] == 8'd0 ? 10'd1 : {2'b0, b[30:23]};
    assign c_exponent = c[30:23] == 8'd0 ? 10'd1 : {2'b0, c[30:23]};
    assign a_is_zero = a[30:0] == 31'd0;
    assign b_is_zero = b[30:0] == 31'd0;
    assign a_is_infinite = a[30:0] == 31'h7f800000;
    assign b_is_infinite = b[30:0] == 31'h7f800000;
    assign c_is_infinite = c[30:0] == 31'h7f800000;
    assign any_is_nan = a[30:0] > 31'h7f800000 || b[30:0] > 31'h7f800000 || c[30:0] > 31'h7f800000;

    // ---- Results that are no sum.

    logic product_is_negative, product_is_infinite, special;
    logic [31:0] special_result;

    assign product_is_negative = a[31] ^ b[31];
    assign product_is_infinite = a_is_infinite || b_is_infinite;
    assign special = any_is_nan || product_is_infinite || c_is_infinite;

    always_comb begin
        if (any_is_nan
            || (a_is_infinite && b_is_zero)
            || (b_is_infinite && a_is_zero)
            || (product_is_infinite && c_is_infinite && product_is_negative != c[31]))
            special_result = 32'h7fc00000;
        else
            special_result = {product_is_infinite ? product_is_negative : c[31], 31'h7f800000};
    end

    // ---- Multiply (two DSP48E1), and see how far the addend shifts.

    logic [47:0] product;
    logic signed [9:0] distance;  // from the addend's leftmost place; negative: it would lie further left
    logic addend_is_leftmost;
    logic [6:0] addend_shift;
    logic [9:0] exponent;  // of a number whose leading one is the window's bit 75

    assign product = a_significand * b_significand;
    assign distance = a_exponent + b_exponent - c_exponent - 10'd100;
    assign addend_is_leftmost = a_is_zero || b_is_zero || distance <= 0;
    assign addend_shift = addend_is_leftmost ? 7'd0 : distance > 76 ? 7'd76 : distance[6:0];
    assign exponent = addend_is_leftmost ? c_exponent : a_exponent + b_exponent - 10'd100;

    // ---- First cut.

    logic [47:0] product_1;
    logic [23:0] c_significand_1;
    logic [6:0] addend_shift_1;
    logic [9:0] exponent_1;
    logic product_is_negative_1, c_is_negative_1, special_1;
    logic [31:0] special_result_1;

    registers #(
        .WIDTH (48 + 24 + 7 + 10 + 3 + 32),
        .STAGES(AFTER_PRODUCT)
    ) after_product (
        .clk,
        .d({product, c_significand, addend_shift, exponent, product_is_negative, c[31], special, special_result}),
        .q({product_1, c_significand_1, addend_shift_1, exponent_1, product_is_negative_1, c_is_negative_1, special_1,
            special_result_1})
    );

    // ---- Align the addend; add it, or subtract it from the product. Bits that fell out borrow one from a difference, and
    // stay sticky below it.

    logic [75:0] addend, sum;
    logic [23:0] fallen_out;
    logic subtract, sticky, sum_is_negative;
    logic [76:0] difference;

    assign {addend, fallen_out} = {c_significand_1, 76'd0} >> addend_shift_1;
    assign sticky = fallen_out != 24'd0;
    assign subtract = product_is_negative_1 != c_is_negative_1;
    assign difference = {27'd0, product_1, 2'b0} - {1'b0, addend} - {76'd0, sticky};

    always_comb begin
        if (!subtract) begin
            sum = {26'd0, product_1, 2'b0} + addend;
            sum_is_negative = product_is_negative_1;
        end else if (difference[76]) begin  // the addend is larger; then none of its bits fell out
            sum = -difference[75:0];
            sum_is_negative = c_is_negative_1;
        end else begin
            sum = difference[75:0];
            sum_is_negative = product_is_negative_1 && (difference != 77'd0);  // x - x is +0
        end
    end

    // ---- Second cut.

    logic [75:0] sum_2;
    logic [9:0] exponent_2;
    logic sum_is_negative_2, sticky_2, special_2;
    logic [31:0] special_result_2;

    registers #(
        .WIDTH (76 + 10 + 3 + 32),
        .STAGES(AFTER_SUM)
    ) after_sum (
        .clk,
        .d({sum, exponent_1, sum_is_negative, sticky, special_1, special_result_1}),
        .q({sum_2, exponent_2, sum_is_negative_2, sticky_2, special_2, special_result_2})
    );

    // ---- Normalise: the leading one to bit 75, or as far as the smallest exponent allows, which leaves a subnormal.

    logic [6:0] zeros, shift;
    logic [75:0] normalised;
    logic [9:0] result_exponent;  // biased; 0 of subnormals

    leading_zeros_76 count (
        .x(sum_2),
        .zeros
    );
    assign shift = {3'd0, zeros} < exponent_2 ? zeros : exponent_2[6:0] - 7'd1;
    assign normalised = sum_2 << shift;
    assign result_exponent = normalised[75] ? exponent_2 - {3'd0, shift} : 10'd0;

    // ---- Third cut. Below the half place one bit says whether anything is left.

    logic [22:0] fraction_3;
    logic [9:0] result_exponent_3;
    logic half_3, rest_3, result_is_negative_3, special_3;
    logic [31:0] special_result_3;

    registers #(
        .WIDTH (10 + 23 + 4 + 32),
        .STAGES(AFTER_NORMALISE)
    ) after_normalise (
        .clk,
        .d({result_exponent, normalised[74:52], normalised[51], (normalised[50:0] != 51'd0) || sticky_2, sum_is_negative_2,
            special_2, special_result_2}),
        .q({result_exponent_3, fraction_3, half_3, rest_3, result_is_negative_3, special_3, special_result_3})
    );

    // ---- Round. A carry out of the fraction is right as it is: the next exponent, the smallest normal number, infinity.

    logic [32:0] rounded;
    logic [31:0] result;

    assign rounded = {result_exponent_3, fraction_3} + {32'd0, half_3 && (rest_3 || fraction_3[0])};

    always_comb begin
        if (special_3) result = special_result_3;
        else if (rounded[32:23] >= 10'd255) result = {result_is_negative_3, 31'h7f800000};
        else result = {result_is_negative_3, rounded[30:0]};
    end

    registers #(
        .WIDTH (32),
        .STAGES(AFTER_ROUND)
    ) after_round (
        .clk,
        .d(result),
        .q(y)
    );

endmodule
