// The stages of `fp32_fma`, as functions: simulators compile them once for all multiply-adds.
package fp32;

    // Bits between the stages.
    localparam int MULTIPLIED      = 48 + 24 + 7 + 10 + 3 + 32;
    localparam int ADDED           = 76 + 10 + 3 + 32;
    localparam int NORMALISED      = 10 + 23 + 4 + 32;

    // ---- Unpack, multiply (two DSP48E1), and see how far the addend shifts. A subnormal has the exponent of the smallest
    // normal numbers, and no leading one.

    function automatic logic [MULTIPLIED-1:0] multiplied(
        input logic [31:0] x, input logic [31:0] w, input logic [31:0] s
    );
        /* verilator no_inline_task */
        logic [23:0] a_significand, b_significand, c_significand;
        logic [9:0] a_exponent, b_exponent, c_exponent;  // biased by 127, from 1
        logic a_is_zero, b_is_zero, a_is_infinite, b_is_infinite, c_is_infinite, any_is_nan;
        logic product_is_negative, product_is_infinite, special;
        logic [31:0] special_result;
        logic [47:0] product;
        logic signed [9:0] distance;  // from the addend's leftmost place; negative: it would lie further left
        logic addend_is_leftmost;
        logic [6:0] addend_shift;
        logic [9:0] exponent;  // of a number whose leading one is the window's bit 75

        a_significand = {x[30:23] != 8'd0, x[22:0]};
        b_significand = {w[30:23] != 8'd0, w[22:0]};
        c_significand = {s[30:23] != 8'd0, s[22:0]};
        a_exponent = x[30:23] == 8'd0 ? 10'd1 : {2'b0, x[30:23]};
        b_exponent = w[30:23] == 8'd0 ? 10'd1 : {2'b0, w[30:23]};
        c_exponent = s[30:23] == 8'd0 ? 10'd1 : {2'b0, s[30:23]};
        a_is_zero = x[30:0] == 31'd0;
        b_is_zero = w[30:0] == 31'd0;
        a_is_infinite = x[30:0] == 31'h7f800000;
        b_is_infinite = w[30:0] == 31'h7f800000;
        c_is_infinite = s[30:0] == 31'h7f800000;
        any_is_nan = x[30:0] > 31'h7f800000 || w[30:0] > 31'h7f800000 || s[30:0] > 31'h7f800000;

        // Results that are no sum.
        product_is_negative = x[31] ^ w[31];
        product_is_infinite = a_is_infinite || b_is_infinite;
        special = any_is_nan || product_is_infinite || c_is_infinite;
        if (any_is_nan
            || (a_is_infinite && b_is_zero)
            || (b_is_infinite && a_is_zero)
            || (product_is_infinite && c_is_infinite && product_is_negative != s[31]))
            special_result = 32'h7fc00000;
        else
            special_result = {product_is_infinite ? product_is_negative : s[31], 31'h7f800000};

        product = a_significand * b_significand;
        distance = a_exponent + b_exponent - c_exponent - 10'd100;
        addend_is_leftmost = a_is_zero || b_is_zero || distance <= 0;
        addend_shift = addend_is_leftmost ? 7'd0 : distance > 76 ? 7'd76 : distance[6:0];
        exponent = addend_is_leftmost ? c_exponent : a_exponent + b_exponent - 10'd100;
        multiplied = {c_significand, addend_shift, exponent, product_is_negative, s[31], special, special_result, product};
    endfunction

    // ---- The same of a whole number times 2^exponent in the product's place, with its leading one in bit 46: what it adds
    // to may have any exponent, too.

    function automatic logic [MULTIPLIED-1:0] placed(
        input logic negative, input logic [23:0] magnitude, input logic signed [10:0] exponent, input logic is_nan,
        input logic [31:0] s
    );
        /* verilator no_inline_task */
        logic [6:0] zeros;
        logic [23:0] significand;
        logic [9:0] c_exponent;
        logic signed [11:0] top, distance;  // `top` as `exponent` of the window, where the number lies in it
        logic c_is_nan, addend_is_leftmost;
        logic [6:0] addend_shift;
        logic [31:0] special_result;

        zeros = leading_zeros({magnitude, 52'd0});
        significand = magnitude << zeros[4:0];
        c_exponent = s[30:23] == 8'd0 ? 10'd1 : {2'b0, s[30:23]};
        top = 12'(exponent) - 12'(zeros) + 12'sd177;
        distance = top - 12'(c_exponent);
        addend_is_leftmost = magnitude == 24'd0 || distance <= 12'sd0;
        addend_shift = addend_is_leftmost ? 7'd0 : distance > 12'sd76 ? 7'd76 : distance[6:0];
        c_is_nan = s[30:0] > 31'h7f800000;
        special_result = is_nan || c_is_nan ? 32'h7fc00000 : s;
        placed = {
            s[30:23] != 8'd0, s[22:0], addend_shift, addend_is_leftmost ? c_exponent : top[9:0], negative, s[31],
            is_nan || s[30:23] == 8'hff, special_result, 1'b0, significand, 23'd0
        };
    endfunction

    // ---- Align the addend; add it, or subtract it from the product. Bits that fell out borrow one from a difference, and
    // stay sticky below it. Narrow products need a narrower window: of its last `cut` bits, which stay 0, bits fall out, too.

    function automatic logic [ADDED-1:0] added(input logic [MULTIPLIED-1:0] from, input logic [5:0] cut);
        /* verilator no_inline_task */
        logic [47:0] product;
        logic [23:0] c_significand;
        logic [6:0] addend_shift;
        logic [9:0] exponent;
        logic product_is_negative, c_is_negative, special;
        logic [31:0] special_result;
        logic [75:0] whole, addend, sum;
        logic [23:0] fallen_out;
        logic sticky, sum_is_negative;
        logic [76:0] difference;

        {c_significand, addend_shift, exponent, product_is_negative, c_is_negative, special, special_result, product} = from;
        {whole, fallen_out} = {c_significand, 76'd0} >> addend_shift;
        addend = (whole >> cut) << cut;
        sticky = fallen_out != 24'd0 || addend != whole;
        difference = {27'd0, product, 2'b0} - {1'b0, addend} - ({76'd0, sticky} << cut);
        if (product_is_negative == c_is_negative) begin
            sum = {26'd0, product, 2'b0} + addend;
            sum_is_negative = product_is_negative;
        end else if (difference[76]) begin  // the addend is larger; then none of its bits fell out
            sum = -difference[75:0];
            sum_is_negative = c_is_negative;
        end else begin
            sum = difference[75:0];
            sum_is_negative = product_is_negative && (difference != 77'd0);  // x - x is +0
        end
        added = {exponent, sum_is_negative, sticky, special, special_result, sum};
    endfunction

    // ---- How many zeros stand before the first one; 75 or 76 of a zero. Each step keeps that half of what the step before
    // it left in which the first one is.

    function automatic logic [6:0] leading_zeros(input logic [75:0] x);
        // The last place of each is left out: where no other bit is a one, that one is.
        logic [63:1] left_64;
        logic [31:1] left_32;
        logic [15:1] left_16;
        logic [7:1] left_8;
        logic [3:1] left_4;

        leading_zeros[6] = x[75:12] == 64'd0;
        left_64 = leading_zeros[6] ? {x[11:0], {51{1'b1}}} : x[75:13];
        leading_zeros[5] = left_64[63:32] == 32'd0;
        left_32 = leading_zeros[5] ? left_64[31:1] : left_64[63:33];
        leading_zeros[4] = left_32[31:16] == 16'd0;
        left_16 = leading_zeros[4] ? left_32[15:1] : left_32[31:17];
        leading_zeros[3] = left_16[15:8] == 8'd0;
        left_8 = leading_zeros[3] ? left_16[7:1] : left_16[15:9];
        leading_zeros[2] = left_8[7:4] == 4'd0;
        left_4 = leading_zeros[2] ? left_8[3:1] : left_8[7:5];
        leading_zeros[1] = left_4[3:2] == 2'd0;
        leading_zeros[0] = leading_zeros[1] ? !left_4[1] : !left_4[3];
    endfunction

    // ---- Normalise: the leading one to bit 75, or as far as the smallest exponent allows, which leaves a subnormal. Below
    // the half place one bit says whether anything is left.

    function automatic logic [NORMALISED-1:0] normalised(input logic [ADDED-1:0] from);
        /* verilator no_inline_task */
        logic [75:0] sum, moved;
        logic [9:0] exponent, result_exponent;  // biased; 0 of subnormals
        logic sum_is_negative, sticky, special;
        logic [31:0] special_result;
        logic [6:0] zeros, shift;

        {exponent, sum_is_negative, sticky, special, special_result, sum} = from;
        zeros = leading_zeros(sum);
        shift = {3'd0, zeros} < exponent ? zeros : exponent[6:0] - 7'd1;
        moved = sum << shift;
        result_exponent = moved[75] ? exponent - {3'd0, shift} : 10'd0;
        normalised = {result_exponent, moved[74:52], moved[51], (moved[50:0] != 51'd0) || sticky, sum_is_negative, special,
            special_result};
    endfunction

    // ---- Round. A carry out of the fraction is right as it is: the next exponent, the smallest normal number, infinity.

    function automatic logic [31:0] rounded(input logic [NORMALISED-1:0] from);
        /* verilator no_inline_task */
        logic [22:0] fraction;
        logic [9:0] result_exponent;
        logic half, rest, is_negative, special;
        logic [31:0] special_result;
        logic [32:0] magnitude;

        {result_exponent, fraction, half, rest, is_negative, special, special_result} = from;
        magnitude = {result_exponent, fraction} + {32'd0, half && (rest || fraction[0])};
        if (special) rounded = special_result;
        else if (magnitude[32:23] >= 10'd255) rounded = {is_negative, 31'h7f800000};
        else rounded = {is_negative, magnitude[30:0]};
    endfunction

    // ---- All stages at once: a * b + c.

    function automatic logic [31:0] fused(
        input logic [31:0] a, input logic [31:0] b, input logic [31:0] c, input logic [5:0] cut
    );
        /* verilator no_inline_task */
        fused = rounded(normalised(added(multiplied(a, b, c), cut)));
    endfunction

endpackage
