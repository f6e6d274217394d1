// The rectifier of kernels/layers/relu.py: +0 where x <= 0, otherwise x; a NaN stays as it is.
module fp32_relu (
    input  logic [31:0] x,
    output logic [31:0] y
);

    assign y = x[31] && x[30:0] <= 31'h7f800000 ? 32'd0 : x;

endmodule
