// The reverse of `pack`: the fp32 number of a code, above which is its block's scale (E8M0), if it has one. Wires alone.
module unpack #(
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int               BITS   = int'(FORMAT.bits),
    parameter int               WIDTH  = BITS + (FORMAT.block != 17'd0 ? 8 : 0)
) (
    input  logic [WIDTH-1:0] code,
    output logic [31:0]      x
);

    localparam int FRACTION_BITS = int'(FORMAT.fraction_bits);
    localparam int LEAST         = int'(FORMAT.least_exponent);
    localparam int SCALED        = FORMAT.block != 17'd0 ? 1 : 0;

    if (LEAST == -126 && SCALED == 0) begin : g_upper
        assign x = 32'(code) << (32 - BITS);
    end else begin : g_counted
        localparam int PLACES = BITS - 1;
        localparam logic [30:0] ONES = (31'd1 << PLACES) - 31'd1;
        localparam logic signed [10:0] SMALLEST = 11'(LEAST + 127);  // biased

        logic [30:0] place, field;
        logic [FRACTION_BITS:0] significand;
        logic [23:0] leading, subnormal;
        logic [6:0] zeros;
        logic [7:0] scale;
        logic signed [10:0] exponent;  // biased
        logic [10:0] below;
        logic is_nan, is_infinite;

        if (SCALED != 0) begin : g_scaled
            assign scale = code[WIDTH-1-:8];
            assign is_nan = scale == 8'd255;
            assign is_infinite = 1'b0;
        end else begin : g_alone
            assign scale = 8'd127;
            assign is_infinite = FORMAT.overflows && place == ((ONES >> FRACTION_BITS) << FRACTION_BITS);
            assign is_nan = place == ONES;
        end
        assign place = 31'(code[PLACES-1:0]);
        assign field = place >> FRACTION_BITS;
        assign significand = (FRACTION_BITS + 1)'(place - ((field == 31'd0 ? 31'd0 : field - 31'd1) << FRACTION_BITS));
        assign zeros = fp32::leading_zeros({significand, {75 - FRACTION_BITS{1'b0}}});
        assign leading = {significand, {23 - FRACTION_BITS{1'b0}}} << zeros;
        assign exponent = SMALLEST + 11'(field == 31'd0 ? 31'd0 : field - 31'd1) - 11'(zeros) + 11'(scale) - 11'sd127;
        assign below = 11'd1 - exponent;
        assign subnormal = leading >> below;
        wire unused = &{subnormal, exponent, leading};

        always_comb
            if (is_nan) x = 32'h7fc0_0000;
            else if (is_infinite) x = {code[PLACES], 31'h7f80_0000};
            else if (place == 31'd0) x = {code[PLACES], 31'd0};
            else if (SCALED != 0 && exponent < 11'sd1) x = {code[PLACES], 8'd0, subnormal[22:0]};
            else x = {code[PLACES], exponent[7:0], leading[22:0]};
    end

endmodule
