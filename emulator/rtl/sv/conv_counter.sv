// Which convolution of a row a tile takes next. An engine's tiles take all convolutions of a row in turn (FPDeep,
// sections 5.3 to 5.5): tile FIRST of STEP takes number FIRST, FIRST + STEP, ... Their order is `outer`, then `column`,
// then `channel`, which is fastest; so the terms of one sum are COLUMNS * CHANNELS convolutions apart.
module conv_counter #(
    parameter int CHANNELS = 1,
    parameter int COLUMNS  = 1,
    parameter int OUTERS   = 1,
    parameter int STEP     = 1,
    parameter int FIRST    = 0,
    // Bits of the digits; `outer` runs past its end, where the tile is idle.
    parameter int CHANNEL_BITS = CHANNELS > 1 ? $clog2(CHANNELS) : 1,
    parameter int COLUMN_BITS  = COLUMNS > 1 ? $clog2(COLUMNS) : 1,
    parameter int OUTER_BITS   = $clog2(OUTERS + STEP / (CHANNELS * COLUMNS) + 2)
) (
    input  logic                    clk,
    input  logic                    restart,
    input  logic                    advance,
    output logic [CHANNEL_BITS-1:0] channel,
    output logic [COLUMN_BITS-1:0]  column,
    output logic [OUTER_BITS-1:0]   outer,
    output logic                    active
);

    localparam int BY_CHANNEL = STEP % CHANNELS;
    localparam int BY_COLUMN  = STEP / CHANNELS % COLUMNS;
    localparam int BY_OUTER   = STEP / CHANNELS / COLUMNS;

    logic [CHANNEL_BITS:0] channel_sum;
    logic [COLUMN_BITS:0] column_sum;
    logic channel_carries, column_carries;

    assign channel_sum = {1'b0, channel} + (CHANNEL_BITS + 1)'(BY_CHANNEL);
    assign channel_carries = channel_sum >= (CHANNEL_BITS + 1)'(CHANNELS);
    assign column_sum = {1'b0, column} + (COLUMN_BITS + 1)'(BY_COLUMN) + (COLUMN_BITS + 1)'(channel_carries);
    assign column_carries = column_sum >= (COLUMN_BITS + 1)'(COLUMNS);
    assign active = outer < OUTER_BITS'(OUTERS);

    always_ff @(posedge clk) begin
        if (restart) begin
            channel <= CHANNEL_BITS'(FIRST % CHANNELS);
            column  <= COLUMN_BITS'(FIRST / CHANNELS % COLUMNS);
            outer   <= OUTER_BITS'(FIRST / CHANNELS / COLUMNS);
        end else if (advance) begin
            channel <= CHANNEL_BITS'(channel_carries ? channel_sum - (CHANNEL_BITS + 1)'(CHANNELS) : channel_sum);
            column  <= COLUMN_BITS'(column_carries ? column_sum - (COLUMN_BITS + 1)'(COLUMNS) : column_sum);
            outer   <= outer + OUTER_BITS'(BY_OUTER) + OUTER_BITS'(column_carries);
        end
    end

endmodule
