// The reverse of `flatten`: a map's rows, one a cycle, from the one row of a fully connected layer's input errors.
module unflatten #(
    parameter int ROWS     = 1,
    parameter int COLUMNS  = 1,
    parameter int CHANNELS = 1,
    parameter int DEPTH    = 2
) (
    input  logic                                clk,
    input  logic                                reset,
    input  logic                                in_valid,
    input  logic [ROWS*COLUMNS*CHANNELS*32-1:0] in_row,
    output logic                                out_valid,
    output logic [COLUMNS*CHANNELS*32-1:0]      out_row,
    output logic                                overrun
);

    localparam int BITS  = ROWS > 1 ? $clog2(ROWS) : 1;
    localparam int WIDTH = COLUMNS * CHANNELS * 32;

    logic [ROWS*WIDTH-1:0] flat;
    logic [WIDTH-1:0] rows[ROWS];
    logic [BITS-1:0] row;
    logic last;

    row_fifo #(.WIDTH(ROWS * WIDTH), .DEPTH(DEPTH)) waiting (
        .clk, .reset, .in_valid, .in_row, .valid(out_valid), .row(flat), .take(out_valid && last), .overrun
    );
    assign last = row == BITS'(ROWS - 1);
    assign out_row = rows[row];

    always_ff @(posedge clk)
        if (reset) row <= '0;
        else if (out_valid) row <= last ? '0 : row + 1'b1;

    for (genvar r = 0; r < ROWS; r++) begin : g_rows
        logic [WIDTH-1:0] of_row;

        for (genvar x = 0; x < COLUMNS; x++) begin : g_columns
            for (genvar c = 0; c < CHANNELS; c++) begin : g_channels
                assign of_row[(x*CHANNELS+c)*32+:32] = flat[((c*ROWS+r)*COLUMNS+x)*32+:32];
            end
        end
        assign rows[r] = of_row;
    end

endmodule
