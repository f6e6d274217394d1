// An fp32 number rounded onto the grid of a narrow format, bit for bit as `on_grid` of kernels/quantise. Wires alone.
//
// FRACTION_BITS follow the leading one of a number of at least 2^LEAST_EXPONENT; below, values are
// 2^(LEAST_EXPONENT - FRACTION_BITS) apart, which fp32 must hold as a normal number unless its own subnormal numbers are
// meant (LEAST_EXPONENT = -126). Beyond LARGEST, numbers become infinite if the format OVERFLOWS, and else saturate; one
// that is cut towards zero only if it was infinite. Every NaN comes out as 7fc00000.
//
//     [ significand 24 ][ zeros 32 ]  -> shifted right until the grid's last place is the last of `count`
//               [ count ][ rest 32 ]     rest >= half, or, by chance, word < rest: one up
module quantise #(
    parameter int          FRACTION_BITS  = 3,
    parameter int          LEAST_EXPONENT = -6,
    parameter logic [31:0] LARGEST        = 32'h43e0_0000,
    parameter int          OVERFLOWS      = 0,
    parameter int          ROUNDING       = 0  // even, away, zero, stochastic: as `Rounding` of kernels/number
) (
    input  logic [31:0] x,
    input  logic [31:0] word,  // random, for stochastic rounding alone
    output logic [31:0] y
);

    localparam int AWAY = 1, ZERO = 2, STOCHASTIC = 3;
    localparam int CUT = 23 - FRACTION_BITS;
    localparam int LEAST = LEAST_EXPONENT + 127;  // biased
    localparam int MOST_DROPPED = 56;             // then nothing is left
    localparam logic [30:0] INFINITE = 31'h7f80_0000;
    localparam logic [30:0] STEP = {8'(LEAST - FRACTION_BITS), 23'd0};  // of values from 0 on

    logic [23:0] significand, count;
    logic [31:0] rest;
    logic [5:0] dropped;
    logic [30:0] places, rounded;
    logic up, is_infinite, is_beyond;
    int exponent, beneath;

    assign significand = {x[30:23] != 8'd0, x[22:0]};
    assign exponent = x[30:23] == 8'd0 ? 1 : int'(x[30:23]);
    assign beneath = LEAST > 1 && exponent < LEAST ? LEAST - exponent : 0;
    assign dropped = beneath > MOST_DROPPED - CUT ? 6'(MOST_DROPPED) : 6'(CUT + beneath);
    assign {count, rest} = {significand, 32'd0} >> dropped;

    always_comb
        case (ROUNDING)
            AWAY: up = rest[31];
            ZERO: up = 1'b0;
            STOCHASTIC: up = word < rest;
            default: up = rest[31] && (rest[30:0] != 31'd0 || count[0]);
        endcase

    // The grid's places are bits of the number, so one more may be carried into its exponent. Where none is left, the
    // result is no step or one.
    assign places = 31'h7fff_ffff << dropped;
    assign rounded = dropped < 6'd24 ? ((x[30:0] | ~places) + {30'd0, up}) & places : up ? STEP : 31'd0;

    assign is_infinite = x[30:0] == INFINITE;
    assign is_beyond = rounded > LARGEST[30:0];

    always_comb
        if (x[30:0] > INFINITE) y = 32'h7fc0_0000;
        else if (is_beyond && OVERFLOWS != 0 && (ROUNDING != ZERO || is_infinite)) y = {x[31], INFINITE};
        else if (is_beyond) y = {x[31], LARGEST[30:0]};
        else y = {x[31], rounded};

    wire unused = &{word, count};

endmodule
