// A number of a format, carried as fp32, as its code in memory: the sign, and its place among the format's values from 0
// on, which is how IEEE 754 and OCP's OFP8 encode; NaN has all ones. In blocks it is that of the element, which is the
// number over 2^exponent; integers have a sign and a magnitude, too. Wires alone.
module pack #(
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int               BITS   = int'(FORMAT.bits)
) (
    input  logic        [31:0]     x,
    input  logic signed [8:0]      exponent,  // of the block's scale
    output logic        [BITS-1:0] code
);

    localparam int FRACTION_BITS = int'(FORMAT.fraction_bits);
    localparam int LEAST         = int'(FORMAT.least_exponent);

    if (LEAST == -126 && FORMAT.block == 17'd0) begin : g_upper
        wire unused = &{x, exponent};  // fp32's own fields: where the fraction is shorter, it ends in zeros
        assign code = x[31-:BITS];
    end else begin : g_counted
        localparam int PLACES = BITS - 1;
        localparam logic [30:0] INFINITE = 31'h7f80_0000;
        localparam logic signed [10:0] SMALLEST = 11'(LEAST + 127);  // biased

        logic [23:0] significand, leading;
        logic [6:0] zeros;  // of a subnormal number, before its leading one
        logic signed [10:0] distance;  // of its exponent from the least
        logic [10:0] below;
        logic [FRACTION_BITS:0] top;
        logic [30:0] place;

        assign significand = {x[30:23] != 8'd0, x[22:0]};
        assign zeros = fp32::leading_zeros({significand, 52'd0});
        assign leading = significand << zeros;
        assign distance = 11'(x[30:23]) + 11'(x[30:23] == 8'd0) - 11'(zeros) - SMALLEST
            - (FORMAT.block != 17'd0 ? 11'(exponent) : 11'sd0);
        assign below = 11'd0 - distance;
        assign top = leading[23-:FRACTION_BITS+1];
        wire unused = &{leading, exponent, place};

        always_comb
            if (distance < 11'sd0) place = 31'(top >> below);
            else place = (31'(distance) << FRACTION_BITS) + 31'(top);

        always_comb
            if (x[30:0] > INFINITE) code = {x[31], {PLACES{1'b1}}};
            else if (x[30:0] == INFINITE) code = {x[31], {PLACES{1'b1}} << FRACTION_BITS};
            else code = {x[31], place[PLACES-1:0]};
    end

endmodule
