// An fp32 number rounded onto the grid of a narrow format, bit for bit as `on_grid` of kernels/quantise. Wires alone.
//
// FRACTION_BITS follow the leading one of a number of at least 2^LEAST_EXPONENT; below, values are
// 2^(LEAST_EXPONENT - FRACTION_BITS) apart, which fp32 must hold as a normal number unless its own subnormal numbers are
// meant (LEAST_EXPONENT = -126). Beyond LARGEST, numbers become infinite if the format OVERFLOWS, and else saturate; one
// that is cut towards zero only if it was infinite. Every NaN comes out as 7fc00000.
//
// In blocks (SCALED) the grid is 2^exponent times as wide, as far as fp32 holds its values: its step in full
// (LEAST_EXPONENT - FRACTION_BITS >= -22), and of values beyond fp32's the largest below.
//
//     [ significand 24 ][ zeros 32 ]  -> shifted right until the grid's last place is the last of `count`
//               [ count ][ rest 32 ]     rest >= half, or, by chance, word < rest: one up
module quantise #(
    parameter int          FRACTION_BITS  = 3,
    parameter int          LEAST_EXPONENT = -6,
    parameter logic [31:0] LARGEST        = 32'h43e0_0000,
    parameter int          OVERFLOWS      = 0,
    parameter int          ROUNDING       = 0,  // even, away, zero, stochastic: as `Rounding` of kernels/number
    parameter int          SCALED         = 0
) (
    input  logic        [31:0] x,
    input  logic        [31:0] word,      // random, for stochastic rounding alone
    input  logic signed [8:0]  exponent,  // of the scale
    output logic        [31:0] y
);

    assign y = formats::quantised(
        x, word, exponent, 5'(FRACTION_BITS), 9'(LEAST_EXPONENT), 31'(LARGEST), 1'(OVERFLOWS), 2'(ROUNDING), 1'(SCALED)
    );

endmodule
