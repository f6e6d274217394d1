// y = c + sum * 2^exponent, rounded once, to nearest, ties to even: how the exact sum of a block of products enters the sum
// of all. c is as in `fp32_fma`; an exponent may be any that the products of two fp32 numbers have.
//
// A new sum and c may come in each clock; y follows `LATENCY` clocks later. Registers fill the cuts of `fp32_fma` in its
// order, but that the first is before the sum is aligned; 0 is combinational.
module fp32_sum #(
    parameter int LATENCY = 4,
    parameter int BITS    = 20  // of the sum, its sign among them; at most 25
) (
    input  logic                   clk,
    input  logic signed [BITS-1:0] sum,
    input  logic                   is_nothing,  // and the sum is 0: -0 is added, which changes no c
    input  logic signed [10:0]     exponent,
    input  logic                   is_nan,
    input  logic [31:0]            c,
    output logic [31:0]            y
);

    localparam int AFTER_ROUND     = LATENCY < 4 ? (LATENCY < 1 ? 0 : 1) : LATENCY - 3;
    localparam int AFTER_PLACED    = LATENCY > 1 ? 1 : 0;
    localparam int AFTER_SUM       = LATENCY > 2 ? 1 : 0;
    localparam int AFTER_NORMALISE = LATENCY > 3 ? 1 : 0;
    // Below its leading one a number of 24 bits has 23; the window ends where that leads its last place by 25.
    localparam int WINDOW_CUT      = 23;

    logic negative;
    logic [BITS-1:0] magnitude;
    logic [fp32::MULTIPLIED-1:0] placed_now, placed_held;
    logic [fp32::ADDED-1:0] added_now, added_held;
    logic [fp32::NORMALISED-1:0] normalised_now, normalised_held;
    logic [31:0] result;

    assign negative = sum[BITS-1] || is_nothing;
    assign magnitude = sum[BITS-1] ? -sum : sum;
    assign placed_now = fp32::placed(negative, 24'(magnitude), exponent, is_nan, c);
    registers #(.WIDTH(fp32::MULTIPLIED), .STAGES(AFTER_PLACED)) after_placed (
        .clk, .d(placed_now), .q(placed_held)
    );
    assign added_now = fp32::added(placed_held, 6'(WINDOW_CUT));
    registers #(.WIDTH(fp32::ADDED), .STAGES(AFTER_SUM)) after_sum (.clk, .d(added_now), .q(added_held));
    assign normalised_now = fp32::normalised(added_held);
    registers #(.WIDTH(fp32::NORMALISED), .STAGES(AFTER_NORMALISE)) after_normalise (
        .clk, .d(normalised_now), .q(normalised_held)
    );
    assign result = fp32::rounded(normalised_held);
    registers #(.WIDTH(32), .STAGES(AFTER_ROUND)) after_round (.clk, .d(result), .q(y));

endmodule
