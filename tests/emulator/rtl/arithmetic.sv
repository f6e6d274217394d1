// The arithmetic under test: multiply-adds of several latencies side by side.
module arithmetic (
    input  logic        clk,
    input  logic [31:0] a,
    input  logic [31:0] b,
    input  logic [31:0] c,
    output logic [31:0] fma_0,
    output logic [31:0] fma_1,
    output logic [31:0] fma_2,
    output logic [31:0] fma_3,
    output logic [31:0] fma_4,
    output logic [31:0] fma_6
);

    fp32_fma #(.LATENCY(0)) of_0 (.clk, .a, .b, .c, .y(fma_0));
    fp32_fma #(.LATENCY(1)) of_1 (.clk, .a, .b, .c, .y(fma_1));
    fp32_fma #(.LATENCY(2)) of_2 (.clk, .a, .b, .c, .y(fma_2));
    fp32_fma #(.LATENCY(3)) of_3 (.clk, .a, .b, .c, .y(fma_3));
    fp32_fma #(.LATENCY(4)) of_4 (.clk, .a, .b, .c, .y(fma_4));
    fp32_fma #(.LATENCY(6)) of_6 (.clk, .a, .b, .c, .y(fma_6));

endmodule
