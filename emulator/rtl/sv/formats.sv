// Number formats as parameters of modules (docs/numbers.md): the fields of a grid of kernels/number, and how it is reached.
// What `quantise`, `pack` and `unpack` do is here as functions: simulators compile them once.
package formats;

    typedef struct packed {
        logic [5:0]        bits;            // of a number in memory, without its block's scale
        logic [4:0]        fraction_bits;
        logic signed [8:0] least_exponent;
        logic [31:0]       largest;         // as an fp32 number
        logic              overflows;       // to infinity
        logic [1:0]        rounding;        // even, away, zero, by chance: as `quantise` has them
        logic [16:0]       block;           // numbers that share a scale; 0: each stands alone
        logic              floor;           // the scale is by OCP's rule
    } format_t;

    localparam format_t FP32 = {6'd32, 5'd23, -9'sd126, 32'h7f7f_ffff, 1'b1, 2'd0, 17'd0, 1'b0};

    localparam logic [30:0] INFINITE = 31'h7f80_0000;

    // ---- `quantise`. Places that the grid does not have are those behind its fraction, from the number's leading one on
    // or, where the number is below the least exponent, from there.

    function automatic logic [31:0] quantised(
        input logic [31:0] x, input logic [31:0] word, input logic signed [8:0] scale, input logic [4:0] fraction_bits,
        input logic signed [8:0] least_exponent, input logic [30:0] grid_largest, input logic overflows,
        input logic [1:0] rounding, input logic scaled
    );
        /* verilator no_inline_task */
        logic signed [10:0] cut, least, exponent, beneath, lowest, shift, largest_exponent;
        logic [23:0] significand;
        logic [7:0] step;  // as an exponent
        logic [6:0] zeros;  // of a subnormal number, before its leading one
        logic [5:0] dropped;
        logic [31:0] rest;
        logic odd, up, is_beyond;
        logic [30:0] places, rounded, largest;
        logic [4:0] missing;  // places that the largest value has less where it is subnormal

        cut = 11'sd23 - 11'(fraction_bits);
        least = 11'(least_exponent) + 11'sd127;  // biased
        exponent = scaled ? 11'(scale) : 11'sd0;
        significand = {x[30:23] != 8'd0, x[22:0]};
        zeros = scaled ? fp32::leading_zeros({significand, 52'd0}) : 7'd0;
        beneath = least + exponent - 11'(x[30:23]) - 11'(x[30:23] == 8'd0);
        lowest = 11'd0 - 11'(zeros);
        shift = cut + (beneath > lowest && (scaled || least > 11'sd1) ? beneath : lowest);
        dropped = shift < 11'sd0 ? 6'd0 : shift > 11'sd56 ? 6'd56 : shift[5:0];  // by 56 nothing is left

        // Whether the number goes up: to even, away, to zero, by chance.
        odd = 1'(significand >> dropped);
        rest = 32'({significand, 32'd0} >> dropped);
        case (rounding)
            2'd1: up = rest[31];
            2'd2: up = 1'b0;
            2'd3: up = word < rest;
            default: up = rest[31] && (rest[30:0] != 31'd0 || odd);
        endcase

        // The grid's places are bits of the number, so one more may be carried into its exponent. Where none is left, the
        // result is no step or one.
        places = 31'h7fff_ffff << dropped;
        step = 8'(least - 11'(fraction_bits) + exponent);
        rounded = dropped < 6'd24 ? ((x[30:0] | ~places) + {30'd0, up}) & places : up ? {step, 23'd0} : 31'd0;

        // What is beyond the largest value.
        largest_exponent = 11'(grid_largest[30:23]) + exponent;
        missing = 5'(11'sd1 - largest_exponent);
        if (largest_exponent > 11'sd254) largest = {8'd254, 23'h7f_ffff << cut[4:0]};
        else if (largest_exponent > 11'sd0) largest = {largest_exponent[7:0], grid_largest[22:0]};
        else largest = 31'({1'b1, grid_largest[22:0]} >> missing);
        is_beyond = rounded > largest;

        if (x[30:0] > INFINITE) quantised = 32'h7fc0_0000;
        else if (is_beyond && overflows && (rounding != 2'd2 || x[30:0] == INFINITE)) quantised = {x[31], INFINITE};
        else if (is_beyond) quantised = {x[31], largest};
        else quantised = {x[31], rounded};
    endfunction

    // ---- `pack`: the place of a number among a format's values.

    function automatic logic [31:0] place_of(
        input logic [30:0] x, input logic signed [8:0] scale, input logic [5:0] bits, input logic [4:0] fraction_bits,
        input logic signed [8:0] least_exponent
    );
        /* verilator no_inline_task */
        logic [23:0] significand, leading, top;
        logic [6:0] zeros;  // of a subnormal number, before its leading one
        logic signed [10:0] distance;  // of its exponent from the least
        logic [10:0] below;
        logic [31:0] ones;

        significand = {x[30:23] != 8'd0, x[22:0]};
        zeros = fp32::leading_zeros({significand, 52'd0});
        leading = significand << zeros;
        distance = 11'(x[30:23]) + 11'(x[30:23] == 8'd0) - 11'(zeros) - 11'(least_exponent) - 11'sd127 - 11'(scale);
        below = 11'd0 - distance;
        top = leading >> (5'd23 - fraction_bits);
        ones = (32'd1 << (bits - 6'd1)) - 32'd1;
        if (x > INFINITE) place_of = ones;
        else if (x == INFINITE) place_of = (ones >> fraction_bits) << fraction_bits;
        else if (distance < 11'sd0) place_of = 32'(top >> below);
        else place_of = (32'(distance) << fraction_bits) + 32'(top);
    endfunction

    // ---- `unpack`: the number at a place, with a scale as E8M0; that of 1 is 127.

    function automatic logic [30:0] number_at(
        input logic [31:0] place, input logic [7:0] scale, input logic [5:0] bits, input logic [4:0] fraction_bits,
        input logic signed [8:0] least_exponent, input logic overflows, input logic scaled
    );
        /* verilator no_inline_task */
        logic [31:0] ones, field;
        logic [23:0] leading;
        logic [6:0] zeros;
        logic signed [10:0] exponent;  // biased
        logic [10:0] below;

        ones = (32'd1 << (bits - 6'd1)) - 32'd1;
        field = place >> fraction_bits;
        if (field != 32'd0) field = field - 32'd1;
        leading = 24'(place - (field << fraction_bits)) << (5'd23 - fraction_bits);
        zeros = fp32::leading_zeros({leading, 52'd0});
        leading = leading << zeros;
        exponent = 11'(least_exponent) + 11'(field) - 11'(zeros) + 11'(scale);
        below = 11'd1 - exponent;
        // A sign and a fraction alone are fixed point, in which a NaN reads as the largest number.
        if (scaled ? scale == 8'd255 : place == ones && bits != 6'(fraction_bits) + 6'd1) number_at = 31'h7fc0_0000;
        else if (overflows && place == ((ones >> fraction_bits) << fraction_bits)) number_at = INFINITE;
        else if (place == 32'd0) number_at = 31'd0;
        else if (exponent < 11'sd1) number_at = 31'(leading >> below);
        else number_at = {exponent[7:0], leading[22:0]};
    endfunction

endpackage
