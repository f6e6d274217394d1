// PG of a slice (FPDeep, section 5.5). A row starts when that row of output errors is there; its activations have been
// in Act-RAM since FP.
module pg_engine #(
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
    parameter int READS          = 1,
    // Of activations and errors, and of the factors, as `fp32_fma` has them.
    parameter formats::format_t FORMAT = formats::FP32,
    parameter formats::format_t ERRORS = formats::FP32,
    parameter int CODE           = int'(FORMAT.bits) + (FORMAT.block != 17'd0 ? 8 : 0),
    parameter int ERROR_CODE     = int'(ERRORS.bits) + (ERRORS.block != 17'd0 ? 8 : 0),
    parameter int SIGNIFICAND    = 24,
    parameter int SUBNORMAL      = 1,
    // DOT: products are added in blocks of so many pixels (`dot_sums`), by TILES units.
    parameter int DOT            = 0,
    parameter int SEGMENTS       = 1,
    parameter int DEPTH          = 0,
    parameter int STEPS          = 0,
    parameter int WORDS          = INPUTS * OUTPUTS * KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int WORD_BITS      = $clog2(WORDS + READS),
    parameter int ADDRESS_BITS   = ROWS_IN * SLOTS > 1 ? $clog2(ROWS_IN * SLOTS) : 1,
    parameter int ERROR_BITS     = ROWS * SLOTS > 1 ? $clog2(ROWS * SLOTS) : 1
) (
    input  logic                                          clk,
    input  logic                                          reset,
    input  logic [31:0]                                   batch,
    input  logic [31:0]                                   limit,
    input  logic [31:0]                                   arrived,  // rows of output errors so far
    output logic                                          load,
    output logic [KERNEL_ROWS*ADDRESS_BITS-1:0]           address,
    output logic [KERNEL_ROWS-1:0]                        in_map,
    input  logic [KERNEL_ROWS*COLUMNS_IN*INPUTS*CODE-1:0] rows,
    output logic [ERROR_BITS-1:0]                         error_address,
    input  logic [COLUMNS*OUTPUTS*ERROR_CODE-1:0]         errors,
    output logic                                          done,
    input  logic [WORD_BITS-1:0]                          read_address,
    output logic [READS*32-1:0]                           read
);

    // Convolutions of a row, or parts of blocks for two weights.
    localparam int TERMS    = DOT > 0 ? INPUTS * KERNEL_ROWS * KERNEL_COLUMNS * ((OUTPUTS + 1) / 2) * SEGMENTS
        : INPUTS * OUTPUTS * COLUMNS;
    localparam int GROUPS   = (TERMS + TILES - 1) / TILES;
    localparam int ROW_BITS = ROWS > 1 ? $clog2(ROWS) : 1;

    logic [31:0] sample, rows_before;
    logic [ROW_BITS-1:0] row;
    logic [ADDRESS_BITS-1:0] slot;
    logic [ERROR_BITS-1:0] error_slot;
    logic start, issue, last, ready;

    assign ready = arrived - rows_before > 32'(row) && sample < limit;

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
    assign error_address = ERROR_BITS'(int'(error_slot) + int'(row));

    always_ff @(posedge clk) begin
        if (reset) begin
            rows_before <= '0;
            slot <= '0;
            error_slot <= '0;
        end else if (start && row == ROW_BITS'(ROWS - 1)) begin
            rows_before <= rows_before + ROWS;
            slot <= slot == ADDRESS_BITS'((SLOTS - 1) * ROWS_IN) ? '0 : slot + ADDRESS_BITS'(ROWS_IN);
            error_slot <= error_slot == ERROR_BITS'((SLOTS - 1) * ROWS) ? '0 : error_slot + ERROR_BITS'(ROWS);
        end
    end

    if (DOT > 0) begin : g_blocks
        localparam int PLACE_BITS = DOT > 1 ? $clog2(DOT) : 1;

        logic [PLACE_BITS-1:0] place;
        logic first_block, last_row;

        always_ff @(posedge clk)
            if (start) begin
                place <= PLACE_BITS'(int'(row) * COLUMNS % DOT);
                first_block <= sample == limit - batch && int'(row) * COLUMNS < DOT;
                last_row <= row == ROW_BITS'(ROWS - 1);
            end
        dot_sums #(
            .INPUTS(INPUTS), .OUTPUTS(OUTPUTS), .COLUMNS_IN(COLUMNS_IN), .COLUMNS(COLUMNS), .KERNEL_ROWS(KERNEL_ROWS),
            .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE(STRIDE_COLUMNS), .PAD(PAD_COLUMNS), .UNITS(TILES), .DOT(DOT),
            .SEGMENTS(SEGMENTS), .STEPS(STEPS), .DEPTH(DEPTH), .LATENCY(LATENCY), .READS(READS), .FORMAT(FORMAT),
            .ERRORS(ERRORS)
        ) of (
            .clk, .reset, .start, .issue, .last, .place, .first_block, .last_row, .rows, .errors, .done, .read_address,
            .read
        );
    end else begin : g_products
        logic first_row;

        always_ff @(posedge clk) if (start) first_row <= sample == limit - batch && row == '0;
        gradient_sums #(
            .INPUTS(INPUTS), .OUTPUTS(OUTPUTS), .COLUMNS_IN(COLUMNS_IN), .COLUMNS(COLUMNS), .KERNEL_ROWS(KERNEL_ROWS),
            .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE(STRIDE_COLUMNS), .PAD(PAD_COLUMNS), .TILES(TILES), .LATENCY(LATENCY),
            .READS(READS), .FORMAT(FORMAT), .ERRORS(ERRORS), .SIGNIFICAND(SIGNIFICAND), .SUBNORMAL(SUBNORMAL)
        ) of (
            .clk, .reset, .start, .issue, .last, .first_row, .rows, .errors, .done, .read_address, .read
        );
    end

endmodule
