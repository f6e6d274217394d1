// y = a * b + c, of integers of WIDTH bits in two's complement; the sum has 32 and wraps, so chains are to be too short
// for that. As `fp32_fma`, a new a, b, c may come in each clock, and y follows `LATENCY` clocks later: registers after the
// sum, the product, and the operands, which a DSP48E1 has itself; more than three are plain delays, 0 is combinational.
module int32_fma #(
    parameter int WIDTH   = 8,
    parameter int LATENCY = 3
) (
    input  logic                    clk,
    input  logic signed [WIDTH-1:0] a,
    input  logic signed [WIDTH-1:0] b,
    input  logic signed [31:0]      c,
    output logic signed [31:0]      y
);

    localparam int AFTER_SUM      = LATENCY < 3 ? (LATENCY < 1 ? 0 : 1) : LATENCY - 2;
    localparam int AFTER_PRODUCT  = LATENCY > 1 ? 1 : 0;
    localparam int AFTER_OPERANDS = LATENCY > 2 ? 1 : 0;

    logic signed [WIDTH-1:0] a_held, b_held;
    logic signed [2*WIDTH-1:0] product, product_held;
    logic signed [31:0] c_held, sum;

    registers #(.WIDTH(2 * WIDTH), .STAGES(AFTER_OPERANDS)) after_operands (.clk, .d({a, b}), .q({a_held, b_held}));
    assign product = a_held * b_held;
    registers #(.WIDTH(2 * WIDTH), .STAGES(AFTER_PRODUCT)) after_product (.clk, .d(product), .q(product_held));
    registers #(.WIDTH(32), .STAGES(AFTER_OPERANDS + AFTER_PRODUCT)) c_waits (.clk, .d(c), .q(c_held));
    assign sum = 32'(product_held) + c_held;
    registers #(.WIDTH(32), .STAGES(AFTER_SUM)) after_sum (.clk, .d(sum), .q(y));

endmodule
