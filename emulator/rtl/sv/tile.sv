// A convolution tile: "K x K multiply-accumulate units and executes a K x K convolution operation per cycle" (FPDeep,
// section 5.3). Its units form a chain, so that products are added one by one in a fixed order, kernel row by kernel row
// (docs/numerics.md), each by one fused multiply-add. The chain is systolic: unit k's factors wait k * LATENCY cycles for
// the sum, and all of them SKEW cycles where the sum comes from another tile. y follows SKEW + TAPS * LATENCY cycles
// after the factors.
module tile #(
    parameter int TAPS    = 1,
    parameter int LATENCY = 0,
    parameter int SKEW    = 0,
    // Of the factors, as `fp32_fma` has them.
    parameter int SIGNIFICAND = 24,
    parameter int SUBNORMAL   = 1
) (
    input  logic               clk,
    input  logic [TAPS*32-1:0] x,
    input  logic [TAPS*32-1:0] w,
    input  logic [31:0]        sum,  // SKEW cycles after x and w
    output logic [31:0]        y
);

    for (genvar tap = 0; tap < TAPS; tap++) begin : g_taps
        logic [31:0] a, b, addend, after;

        if (tap == 0) begin : g_first
            assign addend = sum;
        end else begin : g_next
            assign addend = g_taps[tap-1].after;
        end
        registers #(.WIDTH(64), .STAGES(SKEW + tap * LATENCY)) wait_for_sum (
            .clk, .d({x[tap*32+:32], w[tap*32+:32]}), .q({a, b})
        );
        fp32_fma #(.LATENCY(LATENCY), .SIGNIFICAND(SIGNIFICAND), .SUBNORMAL(SUBNORMAL)) multiply_add (
            .clk, .a, .b, .c(addend), .y(after)
        );
    end

    assign y = g_taps[TAPS-1].after;

endmodule
