// A number rounded to a format of numbers that stand alone. Wires alone.
module on_grid #(
    parameter formats::format_t FORMAT = formats::FP32
) (
    input  logic [31:0] x,
    input  logic [31:0] word,  // random, for stochastic rounding alone
    output logic [31:0] y
);

    if (FORMAT.bits == 6'd32) begin : g_all
        wire unused = &word;
        assign y = x;
    end else begin : g_some
        quantise #(
            .FRACTION_BITS(int'(FORMAT.fraction_bits)), .LEAST_EXPONENT(int'(FORMAT.least_exponent)),
            .LARGEST(FORMAT.largest), .OVERFLOWS(int'(FORMAT.overflows)), .ROUNDING(int'(FORMAT.rounding))
        ) number (
            .x, .word, .exponent('0), .y
        );
    end

endmodule
