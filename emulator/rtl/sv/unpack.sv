// The reverse of `pack`: the fp32 number of a code, above which is its block's scale (E8M0), if it has one. Wires alone.
module unpack #(
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int               BITS   = int'(FORMAT.bits),
    parameter int               WIDTH  = BITS + (FORMAT.block != 17'd0 ? 8 : 0)
) (
    input  logic [WIDTH-1:0] code,
    output logic [31:0]      x
);

    if (FORMAT.least_exponent == -9'sd126 && FORMAT.block == 17'd0) begin : g_upper
        assign x = 32'(code) << (32 - BITS);
    end else begin : g_counted
        logic [7:0] scale;

        if (FORMAT.block != 17'd0) begin : g_scaled
            assign scale = code[WIDTH-1-:8];
        end else begin : g_alone
            assign scale = 8'd127;
        end
        assign x = {
            code[BITS-1],
            formats::number_at(
                32'(code[BITS-2:0]), scale, FORMAT.bits, FORMAT.fraction_bits, FORMAT.least_exponent, FORMAT.overflows,
                FORMAT.block != 17'd0
            )
        };
    end

endmodule
