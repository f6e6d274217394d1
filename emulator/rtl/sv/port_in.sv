// The end of a data path: a row arrives in the cycle after its last word has come in (FPDeep, section 5.2.1).
module port_in #(
    parameter int WIDTH = 32
) (
    input  logic             clk,
    input  logic             reset,
    input  logic             in_valid,
    input  logic [WIDTH-1:0] in_row,
    output logic             valid,
    output logic [WIDTH-1:0] row
);

    always_ff @(posedge clk) begin
        valid <= in_valid && !reset;
        if (in_valid) row <= in_row;
    end

endmodule
