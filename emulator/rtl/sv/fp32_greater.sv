// Whether a > b, as IEEE 754 compares: -0 is not below +0, and nothing is greater than a NaN nor a NaN than anything.
module fp32_greater (
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        y
);

    logic any_is_nan, both_are_zero;

    assign any_is_nan = a[30:0] > 31'h7f800000 || b[30:0] > 31'h7f800000;
    assign both_are_zero = a[30:0] == 31'd0 && b[30:0] == 31'd0;

    always_comb begin
        if (any_is_nan || both_are_zero) y = 1'b0;
        else if (a[31] != b[31]) y = b[31];
        else if (a[31]) y = a[30:0] < b[30:0];
        else y = a[30:0] > b[30:0];
    end

endmodule
