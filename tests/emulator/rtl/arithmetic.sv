// The arithmetic under test: multiply-adds of several latencies side by side, and those of narrow factors.
module arithmetic #(
    parameter int FORMATS = 6,
    parameter int SIGNIFICANDS[FORMATS] = '{8, 8, 11, 4, 4, 3},  // as in arithmetic.cpp
    parameter int SUBNORMAL[FORMATS]    = '{1, 0, 0, 1, 0, 0}
) (
    input  logic        clk,
    input  logic [31:0] a,
    input  logic [31:0] b,
    input  logic [31:0] c,
    output logic [31:0] fma_0,
    output logic [31:0] fma_1,
    output logic [31:0] fma_2,
    output logic [31:0] fma_3,
    output logic [31:0] fma_4,
    output logic [31:0] fma_6,
    input  logic [FORMATS*32-1:0] narrow_a,
    input  logic [FORMATS*32-1:0] narrow_b,
    input  logic [FORMATS*32-1:0] narrow_c,
    output logic [FORMATS*32-1:0] narrow_0,
    output logic [FORMATS*32-1:0] narrow_4
);

    fp32_fma #(.LATENCY(0)) of_0 (.clk, .a, .b, .c, .y(fma_0));
    fp32_fma #(.LATENCY(1)) of_1 (.clk, .a, .b, .c, .y(fma_1));
    fp32_fma #(.LATENCY(2)) of_2 (.clk, .a, .b, .c, .y(fma_2));
    fp32_fma #(.LATENCY(3)) of_3 (.clk, .a, .b, .c, .y(fma_3));
    fp32_fma #(.LATENCY(4)) of_4 (.clk, .a, .b, .c, .y(fma_4));
    fp32_fma #(.LATENCY(6)) of_6 (.clk, .a, .b, .c, .y(fma_6));

    for (genvar i = 0; i < FORMATS; i++) begin : g_formats
        logic [31:0] x, w, s;

        assign x = narrow_a[i*32+:32];
        assign w = narrow_b[i*32+:32];
        assign s = narrow_c[i*32+:32];
        fp32_fma #(.LATENCY(0), .SIGNIFICAND(SIGNIFICANDS[i]), .SUBNORMAL(SUBNORMAL[i])) at_once (
            .clk, .a(x), .b(w), .c(s), .y(narrow_0[i*32+:32])
        );
        fp32_fma #(.LATENCY(4), .SIGNIFICAND(SIGNIFICANDS[i]), .SUBNORMAL(SUBNORMAL[i])) piped (
            .clk, .a(x), .b(w), .c(s), .y(narrow_4[i*32+:32])
        );
    end

endmodule
