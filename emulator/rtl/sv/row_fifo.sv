// Rows that wait, first in, first out. A row is there from the cycle after it came.
module row_fifo #(
    parameter int WIDTH = 32,
    parameter int DEPTH = 2
) (
    input  logic             clk,
    input  logic             reset,
    input  logic             in_valid,
    input  logic [WIDTH-1:0] in_row,
    output logic             valid,
    output logic [WIDTH-1:0] row,
    input  logic             take,
    output logic             overrun
);

    localparam int BITS  = DEPTH > 1 ? $clog2(DEPTH) : 1;
    localparam int COUNT = $clog2(DEPTH + 1);

    logic [WIDTH-1:0] memory[DEPTH];
    logic [BITS-1:0] read_address, write_address;
    logic [COUNT-1:0] count;

    assign valid = count != '0;
    assign row = memory[read_address];
    assign overrun = in_valid && !take && count == COUNT'(DEPTH);

    always_ff @(posedge clk) begin
        if (reset) begin
            read_address <= '0;
            write_address <= '0;
            count <= '0;
        end else begin
            if (in_valid) write_address <= write_address == BITS'(DEPTH - 1) ? '0 : write_address + 1'b1;
            if (take) read_address <= read_address == BITS'(DEPTH - 1) ? '0 : read_address + 1'b1;
            count <= count + COUNT'(in_valid) - COUNT'(take);
        end
        if (in_valid) memory[write_address] <= in_row;
    end

endmodule
