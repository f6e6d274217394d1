// y = a / b, rounded once, to nearest, ties to even. Numbers are as those of fp32_fma: subnormals whole, one NaN.
//
// One bit of the quotient in a clock: 27 clocks after `start`, `done` is 1 for one clock; y then stays until the next
// `done`. A `start` before that begins anew.
module fp32_div (
    input  logic        clk,
    input  logic        reset,
    input  logic        start,
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        done,
    output logic [31:0] y
);

    localparam int QUOTIENT = 25;  // bits: the significand's 24, and the half place

    // ---- Unpack. Subnormals are normalised, with exponents below 1.

    logic [23:0] a_raw, b_raw, a_significand, b_significand;
    logic [6:0] a_zeros, b_zeros;
    logic signed [9:0] a_exponent, b_exponent;

    assign a_raw = {a[30:23] != 8'd0, a[22:0]};
    assign b_raw = {b[30:23] != 8'd0, b[22:0]};
    assign a_zeros = fp32::leading_zeros({a_raw, {52{1'b1}}});
    assign b_zeros = fp32::leading_zeros({b_raw, {52{1'b1}}});
    assign a_significand = a_raw << a_zeros;
    assign b_significand = b_raw << b_zeros;
    assign a_exponent = (a[30:23] == 8'd0 ? 10'd1 : {2'b0, a[30:23]}) - {3'd0, a_zeros};
    assign b_exponent = (b[30:23] == 8'd0 ? 10'd1 : {2'b0, b[30:23]}) - {3'd0, b_zeros};

    // ---- Quotients that take no division.

    logic a_is_zero, b_is_zero, a_is_infinite, b_is_infinite, any_is_nan, is_nan, is_infinite, is_zero;

    assign a_is_zero = a[30:0] == 31'd0;
    assign b_is_zero = b[30:0] == 31'd0;
    assign a_is_infinite = a[30:0] == 31'h7f800000;
    assign b_is_infinite = b[30:0] == 31'h7f800000;
    assign any_is_nan = a[30:0] > 31'h7f800000 || b[30:0] > 31'h7f800000;
    assign is_nan = any_is_nan || (a_is_zero && b_is_zero) || (a_is_infinite && b_is_infinite);
    assign is_infinite = a_is_infinite || b_is_zero;
    assign is_zero = a_is_zero || b_is_infinite;

    // ---- Divide. The remainder starts as a's significand, doubled where it is below b's: the quotient's first bit is 1.

    logic a_is_below;
    logic [24:0] remainder, divisor;
    logic [24:0] left;
    logic fits;
    logic [QUOTIENT-1:0] quotient;
    logic [4:0] clocks_left;
    logic signed [9:0] exponent;  // biased, of the quotient's first bit
    logic negative, special;
    logic [31:0] special_result;

    assign a_is_below = a_significand < b_significand;
    assign fits = remainder >= divisor;
    assign left = fits ? remainder - divisor : remainder;

    always_ff @(posedge clk) begin
        if (start) begin
            remainder <= a_is_below ? {a_significand, 1'b0} : {1'b0, a_significand};
            divisor <= {1'b0, b_significand};
            exponent <= a_exponent - b_exponent + (a_is_below ? 10'sd126 : 10'sd127);
            negative <= a[31] ^ b[31];
            special <= is_nan || is_infinite || is_zero;
            special_result <= is_nan ? 32'h7fc00000 : {a[31] ^ b[31], is_infinite ? 31'h7f800000 : 31'd0};
        end else if (clocks_left > 5'd1) begin
            remainder <= {left[23:0], 1'b0};
            quotient <= {quotient[QUOTIENT-2:0], fits};
        end
    end

    // ---- Round. A result below the smallest normal number first shifts right to that number's exponent.

    logic is_subnormal;
    logic [4:0] shift;
    logic [QUOTIENT-1:0] shifted, fallen_out;
    logic rest;
    logic [32:0] rounded;

    assign is_subnormal = exponent < 10'sd1;
    assign shift = !is_subnormal ? 5'd0 : exponent < -10'sd24 ? 5'd25 : 5'(10'sd1 - exponent);
    assign {shifted, fallen_out} = {quotient, {QUOTIENT{1'b0}}} >> shift;
    assign rest = fallen_out != '0 || remainder != 25'd0;
    assign rounded = {is_subnormal ? 10'd0 : exponent, shifted[23:1]} + {32'd0, shifted[0] && (rest || shifted[1])};
    wire unused = &{left[24], shifted[24]};  // the remainder is below b; the first bit is 1, or shifted away

    always_ff @(posedge clk) begin
        if (reset) clocks_left <= 5'd0;
        else if (start) clocks_left <= 5'(QUOTIENT + 1);
        else if (clocks_left != 5'd0) clocks_left <= clocks_left - 5'd1;

        done <= !reset && !start && clocks_left == 5'd1;
        if (clocks_left == 5'd1) begin
            if (special) y <= special_result;
            else if (rounded[32:23] >= 10'd255) y <= {negative, 31'h7f800000};
            else y <= {negative, rounded[30:0]};
        end
    end

endmodule
