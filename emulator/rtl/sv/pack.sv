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

    if (FORMAT.least_exponent == -9'sd126 && FORMAT.block == 17'd0) begin : g_upper
        wire unused = &{x, exponent};  // fp32's own fields: where the fraction is shorter, it ends in zeros
        assign code = x[31-:BITS];
    end else begin : g_counted
        logic [31:0] place;

        assign place = formats::place_of(
            x[30:0], FORMAT.block != 17'd0 ? exponent : 9'sd0, FORMAT.bits, FORMAT.fraction_bits, FORMAT.least_exponent
        );
        wire unused = &{exponent, place};
        assign code = {x[31], place[BITS-2:0]};
    end

endmodule
