// Samples of which all ROWS rows are done.
module sample_counter #(
    parameter int ROWS = 1
) (
    input  logic        clk,
    input  logic        reset,
    input  logic        row_done,
    output logic [31:0] samples
);

    localparam int BITS = ROWS > 1 ? $clog2(ROWS) : 1;

    logic [BITS-1:0] row;

    always_ff @(posedge clk)
        if (reset) begin
            row <= '0;
            samples <= '0;
        end else if (row_done) begin
            row <= row == BITS'(ROWS - 1) ? '0 : row + 1'b1;
            if (row == BITS'(ROWS - 1)) samples <= samples + 1;
        end

endmodule
