// EB of a slice (FPDeep, section 5.4): the errors of its inputs, row by row. A row starts when the last row of output
// errors that reaches it is there; under OCP also when the sums over the output channels of the slices behind are.
module eb_engine #(
    parameter int INPUTS         = 1,
    parameter int OUTPUTS        = 1,
    parameter int ROWS_IN        = 1,  // of the layer's inputs, whose errors are computed
    parameter int COLUMNS_IN     = 1,
    parameter int ROWS           = 1,  // of its outputs
    parameter int COLUMNS        = 1,
    parameter int KERNEL_ROWS    = 1,
    parameter int KERNEL_COLUMNS = 1,
    parameter int STRIDE_ROWS    = 1,
    parameter int STRIDE_COLUMNS = 1,
    parameter int PAD_ROWS       = 0,
    parameter int PAD_COLUMNS    = 0,
    parameter int TILES          = 1,
    parameter int EVERY          = 1,
    parameter int LATENCY        = 0,
    parameter int SLOTS          = 1,
    parameter int TAKES_PARTIAL  = 0,
    // Of what is read, and of the factors, as `fp32_fma` has them.
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int CODE           = int'(FORMAT.bits) + (FORMAT.block != 17'd0 ? 8 : 0),
    parameter int SIGNIFICAND    = 24,
    parameter int SUBNORMAL      = 1,
    // DOT: products are added in blocks (`block_engine`), by TILES units.
    parameter int DOT            = 0,
    parameter int DEPTH          = 0,
    parameter int STEPS          = 0,
    parameter formats::format_t WEIGHT = formats::FP32,
    parameter int READS          = DOT > 0 ? 2 * DOT * TILES : TILES,  // of LPRAM, each of SIZE words
    parameter int SIZE           = DOT > 0 ? 1 : KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int WEIGHTS        = INPUTS * OUTPUTS * KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int ENTRY_BITS     = WEIGHTS > 1 ? $clog2(WEIGHTS) : 1,
    parameter int ADDRESS_BITS   = ROWS * SLOTS > 1 ? $clog2(ROWS * SLOTS) : 1
) (
    input  logic                                           clk,
    input  logic                                           reset,
    input  logic [31:0]                                    limit,
    input  logic [31:0]                                    arrived,  // rows of output errors so far
    output logic                                           load,
    output logic [KERNEL_ROWS*ADDRESS_BITS-1:0]            address,
    output logic [KERNEL_ROWS-1:0]                         in_map,
    input  logic [KERNEL_ROWS*COLUMNS*OUTPUTS*CODE-1:0]    rows,
    output logic [READS*ENTRY_BITS-1:0]                    entry,
    input  logic [READS*SIZE*32-1:0]                       weights,
    input  logic                                           partial_valid,
    input  logic [COLUMNS_IN*INPUTS*32-1:0]                partial,
    output logic                                           out_valid,
    output logic [COLUMNS_IN*INPUTS*32-1:0]                out_row
);

    // Convolutions of a row, or blocks at a place of the kernel for two channels.
    localparam int BLOCKS   = DOT > 0 ? (OUTPUTS + DOT - 1) / (DOT > 0 ? DOT : 1) : 0;
    localparam int TERMS    = DOT > 0 ? BLOCKS * KERNEL_ROWS * KERNEL_COLUMNS * ((INPUTS + 1) / 2) : INPUTS * OUTPUTS;
    localparam int GROUPS   = (TERMS * COLUMNS_IN + TILES - 1) / TILES;
    localparam int ROW_BITS = ROWS_IN > 1 ? $clog2(ROWS_IN) : 1;

    logic [31:0] sample, rows_before;
    logic [ROW_BITS-1:0] row;
    logic [ADDRESS_BITS-1:0] slot;
    logic start, issue, last, ready;
    int needed;
    logic [COLUMNS_IN*INPUTS*32-1:0] from;
    logic [KERNEL_ROWS-1:0] in_phase, rows_reach;

    always_comb begin
        needed = (int'(row) + PAD_ROWS) / STRIDE_ROWS + 1;
        if (needed > ROWS) needed = ROWS;
        ready = arrived - rows_before >= needed && sample < limit && (TAKES_PARTIAL == 0 || partial_valid);
    end

    row_control #(.ROWS(ROWS_IN), .GROUPS(GROUPS), .EVERY(EVERY)) control (
        .clk, .reset, .ready, .sample, .row, .start, .issue, .last
    );

    for (genvar tap = 0; tap < KERNEL_ROWS; tap++) begin : g_rows
        int place, at;

        assign place = int'(row) + PAD_ROWS + STRIDE_ROWS * KERNEL_ROWS - tap;  // not negative
        assign at = place / STRIDE_ROWS - KERNEL_ROWS;
        assign in_phase[tap] = place % STRIDE_ROWS == 0;
        assign in_map[tap] = in_phase[tap] && at >= 0 && at < ROWS;
        assign address[tap*ADDRESS_BITS+:ADDRESS_BITS] = ADDRESS_BITS'(int'(slot) + at);
    end
    assign load = start;

    always_ff @(posedge clk) begin
        if (reset) begin
            rows_before <= '0;
            slot <= '0;
        end else if (start && row == ROW_BITS'(ROWS_IN - 1)) begin
            rows_before <= rows_before + ROWS;
            slot <= slot == ADDRESS_BITS'((SLOTS - 1) * ROWS) ? '0 : slot + ADDRESS_BITS'(ROWS);
        end
        if (start) begin
            from <= TAKES_PARTIAL != 0 ? partial : '0;
            rows_reach <= in_phase;
        end
    end

    if (DOT > 0) begin : g_blocks
        block_engine #(
            .BACKWARD(1), .OUTERS(OUTPUTS), .CHANNELS(INPUTS), .COLUMNS(COLUMNS_IN), .COLUMNS_READ(COLUMNS),
            .KERNEL_ROWS(KERNEL_ROWS), .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE(STRIDE_COLUMNS), .PAD(PAD_COLUMNS),
            .TILES(TILES), .DOT(DOT), .STEPS(STEPS), .DEPTH(DEPTH), .LATENCY(LATENCY), .WEIGHTS(WEIGHTS), .FORMAT(FORMAT),
            .WEIGHT(WEIGHT)
        ) of (
            .clk, .reset, .start, .issue, .last, .rows, .rows_reach, .partial(from), .entry, .weights, .out_valid, .out_row
        );
    end else begin : g_products
        engine #(
            .BACKWARD(1), .OUTERS(OUTPUTS), .CHANNELS(INPUTS), .COLUMNS(COLUMNS_IN), .COLUMNS_READ(COLUMNS),
            .KERNEL_ROWS(KERNEL_ROWS), .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE(STRIDE_COLUMNS), .PAD(PAD_COLUMNS),
            .TILES(TILES), .LATENCY(LATENCY), .WEIGHTS(WEIGHTS), .FORMAT(FORMAT), .SIGNIFICAND(SIGNIFICAND),
            .SUBNORMAL(SUBNORMAL)
        ) of (
            .clk, .reset, .start, .issue, .last, .rows, .rows_reach, .partial(from), .entry, .weights, .out_valid, .out_row
        );
    end

endmodule
