// What a tile's units take from the line buffers. Forward: the window of an output column. BACKWARD: for an input
// column, the output errors that reach it through each kernel place; a place whose stride passes it by does not `reach`.
// Columns outside the map read zeros. Rows are of codes of a format (`unpack`), what is taken is fp32.
module window #(
    parameter int BACKWARD       = 0,
    parameter int CHANNELS       = 1,
    parameter int COLUMNS        = 1,  // of the rows that are read
    parameter int KERNEL_ROWS    = 1,
    parameter int KERNEL_COLUMNS = 1,
    parameter int STRIDE         = 1,
    parameter int PAD            = 0,
    parameter int CHANNEL_BITS   = 1,
    parameter int COLUMN_BITS    = 1,
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int CODE           = int'(FORMAT.bits) + (FORMAT.block != 17'd0 ? 8 : 0)
) (
    input  logic [KERNEL_ROWS*COLUMNS*CHANNELS*CODE-1:0] rows,
    input  logic [KERNEL_ROWS-1:0]                       rows_reach,
    input  logic [COLUMN_BITS-1:0]                       column,
    input  logic [CHANNEL_BITS-1:0]                      channel,
    output logic [KERNEL_ROWS*KERNEL_COLUMNS*32-1:0]     x,
    output logic [KERNEL_ROWS*KERNEL_COLUMNS-1:0]        reaches
);

    localparam int WIDTH = COLUMNS * CHANNELS * CODE;
    localparam int BITS  = $clog2(WIDTH);

    for (genvar across = 0; across < KERNEL_COLUMNS; across++) begin : g_columns
        int place, at;
        logic in_phase, in_map;
        logic [BITS-1:0] offset;

        if (BACKWARD == 0) begin : g_forward
            assign place = int'(column) * STRIDE + across - PAD;
            assign at = place;
            assign in_phase = 1'b1;
        end else begin : g_backward
            assign place = int'(column) + PAD + STRIDE * KERNEL_COLUMNS - across;  // not negative
            assign at = place / STRIDE - KERNEL_COLUMNS;
            assign in_phase = place % STRIDE == 0;
        end
        assign in_map = in_phase && at >= 0 && at < COLUMNS;
        assign offset = BITS'((at * CHANNELS + int'(channel)) * CODE);

        for (genvar down = 0; down < KERNEL_ROWS; down++) begin : g_rows
            logic [WIDTH-1:0] row;
            logic [CODE-1:0] code;

            assign row = rows[down*WIDTH+:WIDTH];
            assign code = in_map ? row[offset+:CODE] : '0;
            unpack #(.FORMAT(FORMAT)) value (.code, .x(x[(down*KERNEL_COLUMNS+across)*32+:32]));
            assign reaches[down*KERNEL_COLUMNS+across] = in_phase && rows_reach[down];
        end
    end

endmodule
