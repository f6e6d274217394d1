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
    output logic [TILES*ENTRY_BITS-1:0]                    entry,
    input  logic [TILES*KERNEL_ROWS*KERNEL_COLUMNS*32-1:0] weights,
    input  logic                                           partial_valid,
    input  logic [COLUMNS*OUTPUTS*32-1:0]                  partial,
    output logic                                           out_valid,
    output logic [COLUMNS*OUTPUTS*32-1:0]                  out_row
);

    localparam int GROUPS   = (INPUTS * OUTPUTS * COLUMNS + TILES - 1) / TILES;
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

    engine #(
        .OUTERS(INPUTS), .CHANNELS(OUTPUTS), .COLUMNS(COLUMNS), .COLUMNS_READ(COLUMNS_IN), .KERNEL_ROWS(KERNEL_ROWS),
        .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE(STRIDE_COLUMNS), .PAD(PAD_COLUMNS), .TILES(TILES), .LATENCY(LATENCY),
        .WEIGHTS(WEIGHTS), .FORMAT(FORMAT), .SIGNIFICAND(SIGNIFICAND), .SUBNORMAL(SUBNORMAL)
    ) of (
        .clk, .reset, .start, .issue, .last, .rows, .rows_reach('1), .partial(from), .entry, .weights, .out_valid,
        .out_row
    );

endmodule
