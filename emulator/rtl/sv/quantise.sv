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

    localparam int AWAY = 1, ZERO = 2, STOCHASTIC = 3;
    localparam int CUT = 23 - FRACTION_BITS;
    localparam int LEAST = LEAST_EXPONENT + 127;         // biased
    localparam logic signed [10:0] MOST_SHIFT = 11'sd56;  // then nothing is left
    localparam logic [30:0] INFINITE = 31'h7f80_0000;
    localparam logic [22:0] FRACTION = ~23'd0 << CUT;

    logic signed [10:0] scale;

    assign scale = SCALED != 0 ? 11'(exponent) : 11'sd0;
    wire unused = &{word, exponent};

    // ---- Places that the grid does not have: those behind its fraction, from the number's leading one on or, where the
    // number is below the least exponent, from there.

    logic [23:0] significand;
    logic [6:0] zeros;  // of a subnormal number, before its leading one
    logic signed [10:0] beneath, lowest, shift;
    logic [5:0] dropped;

    assign significand = {x[30:23] != 8'd0, x[22:0]};
    assign zeros = SCALED != 0 ? fp32::leading_zeros({significand, 52'd0}) : 7'd0;
    assign beneath = 11'(LEAST) + scale - 11'(x[30:23]) - 11'(x[30:23] == 8'd0);
    assign lowest = 11'd0 - 11'(zeros);
    assign shift = 11'(CUT) + (beneath > lowest && (SCALED != 0 || LEAST > 1) ? beneath : lowest);
    assign dropped = shift < 11'sd0 ? 6'd0 : shift > MOST_SHIFT ? MOST_SHIFT[5:0] : shift[5:0];

    // ---- Whether the number goes up.

    logic [23:0] count;
    logic [31:0] rest;
    logic up;

    assign {count, rest} = {significand, 32'd0} >> dropped;
    wire unused_count = &count;

    always_comb
        case (ROUNDING)
            AWAY: up = rest[31];
            ZERO: up = 1'b0;
            STOCHASTIC: up = word < rest;
            default: up = rest[31] && (rest[30:0] != 31'd0 || count[0]);
        endcase

    // ---- The grid's places are bits of the number, so one more may be carried into its exponent. Where none is left, the
    // result is no step or one.

    logic [30:0] places, rounded;
    logic signed [10:0] step;

    assign places = 31'h7fff_ffff << dropped;
    assign step = 11'(LEAST - FRACTION_BITS) + scale;
    wire unused_step = &step;
    assign rounded = dropped < 6'd24 ? ((x[30:0] | ~places) + {30'd0, up}) & places : up ? {step[7:0], 23'd0} : 31'd0;

    // ---- What is beyond the largest value.

    logic signed [10:0] largest_exponent;  // biased
    logic [4:0] missing;                   // places that it has less where it is subnormal
    logic [30:0] largest;
    logic is_beyond;

    assign largest_exponent = 11'(LARGEST[30:23]) + scale;
    assign missing = 5'(11'sd1 - largest_exponent);

    always_comb
        if (largest_exponent > 11'sd254) largest = {8'd254, FRACTION};
        else if (largest_exponent > 11'sd0) largest = {largest_exponent[7:0], LARGEST[22:0]};
        else largest = 31'({1'b1, LARGEST[22:0]} >> missing);

    assign is_beyond = rounded > largest;

    always_comb
        if (x[30:0] > INFINITE) y = 32'h7fc0_0000;
        else if (is_beyond && OVERFLOWS != 0 && (ROUNDING != ZERO || x[30:0] == INFINITE)) y = {x[31], INFINITE};
        else if (is_beyond) y = {x[31], largest};
        else y = {x[31], rounded};

endmodule
