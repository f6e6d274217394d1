// FP of a slice (FPDeep, section 5.3). A row starts when the last input row under its window is there, and for the last
// row all of them; under ICP also when the partial sums from the slice before are there, because the slice's products are
// added to these one by one.
module fp_engine #(
    parameter int INPUTS         = 1,
    parameter int OUTPUTS        = 1,
    parameter int ROWS_IN        = 1,
    parameter int COLUMNS_IN     = 1,
    parameter int ROWS           = 1,
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
    // DOT: products are added in blocks (`block_engine`), by TILES units; of a fully connected layer MAP_ROWS and
    // MAP_COLUMNS say its map.
    parameter int DOT            = 0,
    parameter int DEPTH          = 0,
    parameter int STEPS          = 0,
    parameter int MAP_ROWS       = 1,
    parameter int MAP_COLUMNS    = 1,
    parameter formats::format_t WEIGHT = formats::FP32,
    parameter int READS          = DOT > 0 ? 2 * DOT * TILES : TILES,  // of LPRAM, each of SIZE words
    parameter int SIZE           = DOT > 0 ? 1 : KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int WEIGHTS        = INPUTS * OUTPUTS * KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int ENTRY_BITS     = WEIGHTS > 1 ? $clog2(WEIGHTS) : 1,
    parameter int ADDRESS_BITS   = ROWS_IN * SLOTS > 1 ? $clog2(ROWS_IN * SLOTS) : 1
) (
    input  logic                                           clk,
    input  logic                                           reset,
    input  logic [31:0]                                    limit,    // samples that the weights are for
    input  logic [31:0]                                    arrived,  // input rows so far
    output logic                                           load,     // of line buffers
    output logic [KERNEL_ROWS*ADDRESS_BITS-1:0]            address,
    output logic [KERNEL_ROWS-1:0]                         in_map,
    input  logic [KERNEL_ROWS*COLUMNS_IN*INPUTS*CODE-1:0]  rows,
    output logic [READS*ENTRY_BITS-1:0]                    entry,
    input  logic [READS*SIZE*32-1:0]                       weights,
    input  logic                                           partial_valid,
    input  logic [COLUMNS*OUTPUTS*32-1:0]                  partial,
    output logic                                           out_valid,
    output logic [COLUMNS*OUTPUTS*32-1:0]                  out_row
);

    // Convolutions of a row, or blocks at a place of the kernel for two channels.
    localparam int PLACES   = MAP_ROWS * MAP_COLUMNS;
    localparam int BLOCKS   = DOT > 0 ? (INPUTS / PLACES + DOT - 1) / (DOT > 0 ? DOT : 1) * PLACES : 0;
    localparam int TERMS    = DOT > 0 ? BLOCKS * KERNEL_ROWS * KERNEL_COLUMNS * ((OUTPUTS + 1) / 2) : INPUTS * OUTPUTS;
    localparam int GROUPS   = (TERMS * COLUMNS + TILES - 1) / TILES;
    localparam int ROW_BITS = ROWS > 1 ? $clog2(ROWS) : 1;

    logic [31:0] sample, rows_before;  // of samples before this one
    logic [ROW_BITS-1:0] row;
    logic [ADDRESS_BITS-1:0] slot;  // the sample's first row in Act-RAM
    logic start, issue, last, ready;
    int needed;
    logic [COLUMNS*OUTPUTS*32-1:0] from;

    always_comb begin
        needed = int'(row) * STRIDE_ROWS - PAD_ROWS + KERNEL_ROWS;
        if (needed > ROWS_IN || row == ROW_BITS'(ROWS - 1)) needed = ROWS_IN;
        ready = arrived - rows_before >= needed && sample < limit && (TAKES_PARTIAL == 0 || partial_valid);
    end

    row_control #(.ROWS(ROWS), .GROUPS(GROUPS), .EVERY(EVERY)) control (
        .clk, .reset, .ready, .sample, .row, .start, .issue, .last
    );

    for (genvar tap = 0; tap < KERNEL_ROWS; tap++) begin : g_rows
        int at;

        assign at = int'(row) * STRIDE_ROWS + tap - PAD_ROWS;
        assign in_map[tap] = at >= 0 && at < ROWS_IN;
        assign address[tap*ADDRESS_BITS+:ADDRESS_BITS] = ADDRESS_BITS'(int'(slot) + at);
    end
    assign load = start;

    always_ff @(posedge clk) begin
        if (reset) begin
            rows_before <= '0;
            slot <= '0;
        end else if (start && row == ROW_BITS'(ROWS - 1)) begin
            rows_before <= rows_before + ROWS_IN;
            slot <= slot == ADDRESS_BITS'((SLOTS - 1) * ROWS_IN) ? '0 : slot + ADDRESS_BITS'(ROWS_IN);
        end
        if (start) from <= TAKES_PARTIAL != 0 ? partial : '0;
    end

    if (DOT > 0) begin : g_blocks
        block_engine #(
            .OUTERS(INPUTS), .CHANNELS(OUTPUTS), .COLUMNS(COLUMNS), .COLUMNS_READ(COLUMNS_IN), .KERNEL_ROWS(KERNEL_ROWS),
            .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE(STRIDE_COLUMNS), .PAD(PAD_COLUMNS), .MAP_ROWS(MAP_ROWS),
            .MAP_COLUMNS(MAP_COLUMNS), .TILES(TILES), .DOT(DOT), .STEPS(STEPS), .DEPTH(DEPTH), .LATENCY(LATENCY),
            .WEIGHTS(WEIGHTS), .FORMAT(FORMAT), .WEIGHT(WEIGHT)
        ) of (
            .clk, .reset, .start, .issue, .last, .rows, .rows_reach('1), .partial(from), .entry, .weights, .out_valid,
            .out_row
        );
    end else begin : g_products
        engine #(
            .OUTERS(INPUTS), .CHANNELS(OUTPUTS), .COLUMNS(COLUMNS), .COLUMNS_READ(COLUMNS_IN), .KERNEL_ROWS(KERNEL_ROWS),
            .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE(STRIDE_COLUMNS), .PAD(PAD_COLUMNS), .TILES(TILES), .LATENCY(LATENCY),
            .WEIGHTS(WEIGHTS), .FORMAT(FORMAT), .SIGNIFICAND(SIGNIFICAND), .SUBNORMAL(SUBNORMAL)
        ) of (
            .clk, .reset, .start, .issue, .last, .rows, .rows_reach('1), .partial(from), .entry, .weights, .out_valid,
            .out_row
        );
    end

endmodule
