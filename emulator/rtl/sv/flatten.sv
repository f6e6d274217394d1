// A map as one row, for a fully connected layer: a convolution of one row and one column over all its inputs, in the
// order channel, row, column (docs/time-model.md). The row is there with the map's last one.
module flatten #(
    parameter int ROWS     = 1,
    parameter int COLUMNS  = 1,
    parameter int CHANNELS = 1
) (
    input  logic                                clk,
    input  logic                                reset,
    input  logic                                in_valid,
    input  logic [COLUMNS*CHANNELS*32-1:0]      in_row,
    output logic                                out_valid,
    output logic [ROWS*COLUMNS*CHANNELS*32-1:0] out_row
);

    localparam int BITS  = ROWS > 1 ? $clog2(ROWS) : 1;
    localparam int WIDTH = COLUMNS * CHANNELS * 32;

    logic [ROWS*WIDTH-1:0] whole;
    logic [BITS-1:0] row;

    assign out_valid = in_valid && row == BITS'(ROWS - 1);
    assign whole[(ROWS-1)*WIDTH+:WIDTH] = in_row;

    always_ff @(posedge clk)
        if (reset) row <= '0;
        else if (in_valid) row <= row == BITS'(ROWS - 1) ? '0 : row + 1'b1;

    for (genvar r = 0; r < ROWS; r++) begin : g_rows
        if (r < ROWS - 1) begin : g_kept
            logic [WIDTH-1:0] kept;

            always_ff @(posedge clk) if (in_valid && row == BITS'(r)) kept <= in_row;
            assign whole[r*WIDTH+:WIDTH] = kept;
        end
        for (genvar x = 0; x < COLUMNS; x++) begin : g_columns
            for (genvar c = 0; c < CHANNELS; c++) begin : g_channels
                assign out_row[((c*ROWS+r)*COLUMNS+x)*32+:32] = whole[r*WIDTH+(x*CHANNELS+c)*32+:32];
            end
        end
    end

endmodule
