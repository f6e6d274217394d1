// A max pool of the SFU (FPDeep, section 5.3), both ways, for windows that do not overlap. A pooled row is made when the
// last row of its windows comes; the last one leaves with the map's last row. Each maximum's place in its window is kept
// until its error returns; the first of equal values wins. Errors leave one row a cycle, as soon as the row of pooled
// errors is there from which they come.
module max_pool #(
    parameter int CHANNELS       = 1,
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
    parameter int DEPTH          = 1,  // pooled rows on the way
    parameter int ERRORS         = 2   // rows of errors that wait
) (
    input  logic                              clk,
    input  logic                              reset,
    input  logic                              in_valid,
    input  logic [COLUMNS_IN*CHANNELS*32-1:0] in_row,
    output logic                              out_valid,
    output logic [COLUMNS*CHANNELS*32-1:0]    out_row,
    input  logic                              error_valid,
    input  logic [COLUMNS*CHANNELS*32-1:0]    error_row,
    output logic                              error_out_valid,
    output logic [COLUMNS_IN*CHANNELS*32-1:0] error_out_row,
    output logic                              overrun
);

    localparam int WIDTH  = COLUMNS_IN * CHANNELS * 32;
    localparam int PLACES = $clog2(KERNEL_ROWS * KERNEL_COLUMNS + 1);
    localparam int BITS   = ROWS_IN > 1 ? $clog2(ROWS_IN) : 1;
    localparam int POOLED = ROWS > 1 ? $clog2(ROWS) : 1;

    // Whether a is above b: as whole numbers, with all but the sign turned over where that is set. Zeros are equal.
    function automatic logic is_above(input logic [31:0] a, input logic [31:0] b);
        /* verilator no_inline_task */
        logic [31:0] of_a, of_b;
        of_a = a[31] ? ~a : {1'b1, a[30:0]};
        of_b = b[31] ? ~b : {1'b1, b[30:0]};
        is_above = (of_a > of_b && !(a[30:0] == 31'd0 && b[30:0] == 31'd0)) || a[30:0] > 31'h7f80_0000;
    endfunction

    // ---- There. Of the windows' rows, the last KERNEL_ROWS - 1 are kept.

    logic [KERNEL_ROWS*WIDTH-1:0] rows;  // the newest lowest
    logic [BITS-1:0] row;
    logic [POOLED-1:0] pooled;
    logic ends, is_last;
    int window_end, clipped;
    logic [COLUMNS*CHANNELS*32-1:0] maxima;
    logic [COLUMNS*CHANNELS*PLACES-1:0] places, place_row;
    logic places_overrun, errors_overrun, places_there, error_take;

    assign rows[WIDTH-1:0] = in_row;
    assign is_last = row == BITS'(ROWS_IN - 1);
    assign window_end = int'(pooled) * STRIDE_ROWS - PAD_ROWS + KERNEL_ROWS - 1;
    assign clipped = window_end - int'(row);  // rows of the window below the map, at its last row
    assign ends = window_end == int'(row) || (is_last && clipped > 0);

    if (KERNEL_ROWS > 1) begin : g_kept
        logic [(KERNEL_ROWS-1)*WIDTH-1:0] kept;

        always_ff @(posedge clk) if (in_valid) kept <= rows[(KERNEL_ROWS-1)*WIDTH-1:0];
        assign rows[WIDTH+:(KERNEL_ROWS-1)*WIDTH] = kept;
    end

    always_comb begin
        maxima = '0;
        places = '0;
        if (in_valid)
            for (int x = 0; x < COLUMNS; x++)
                for (int c = 0; c < CHANNELS; c++) begin
                    automatic logic found = 1'b0;
                    automatic logic [31:0] best = '0;
                    automatic logic [PLACES-1:0] place = '0;
                    for (int down = 0; down < KERNEL_ROWS; down++)
                        for (int across = 0; across < KERNEL_COLUMNS; across++) begin
                            automatic int age = KERNEL_ROWS - 1 - down - (clipped > 0 ? clipped : 0);
                            automatic int at = x * STRIDE_COLUMNS - PAD_COLUMNS + across;
                            if (age >= 0 && int'(row) - age >= 0 && at >= 0 && at < COLUMNS_IN) begin
                                automatic logic [31:0] value = rows[age*WIDTH+(at*CHANNELS+c)*32+:32];
                                if (!found || is_above(value, best)) begin
                                    best = value;
                                    place = PLACES'(down * KERNEL_COLUMNS + across);
                                end
                                found = 1'b1;
                            end
                        end
                    maxima[(x*CHANNELS+c)*32+:32] = best;
                    places[(x*CHANNELS+c)*PLACES+:PLACES] = place;
                end
    end

    always_ff @(posedge clk) begin
        if (reset) begin
            row <= '0;
            pooled <= '0;
            out_valid <= 1'b0;
        end else begin
            out_valid <= in_valid && (is_last || (ends && pooled != POOLED'(ROWS - 1)));
            if (in_valid) begin
                row <= is_last ? '0 : row + 1'b1;
                if (is_last) pooled <= '0;
                else if (ends && pooled != POOLED'(ROWS - 1)) pooled <= pooled + 1'b1;
            end
        end
        if (in_valid && ends) out_row <= maxima;
    end

    row_fifo #(.WIDTH(COLUMNS * CHANNELS * PLACES), .DEPTH(DEPTH)) kept_places (
        .clk, .reset, .in_valid(in_valid && ends), .in_row(places), .valid(places_there), .row(place_row),
        .take(error_take), .overrun(places_overrun)
    );

    // ---- And back.

    logic errors_there;
    logic [COLUMNS*CHANNELS*32-1:0] errors;
    logic [BITS-1:0] error_at;
    logic [POOLED-1:0] from;
    int down_at;
    logic [WIDTH-1:0] spread;

    row_fifo #(.WIDTH(COLUMNS * CHANNELS * 32), .DEPTH(ERRORS)) waiting (
        .clk, .reset, .in_valid(error_valid), .in_row(error_row), .valid(errors_there), .row(errors),
        .take(error_take), .overrun(errors_overrun)
    );
    wire unused = places_there;
    assign overrun = places_overrun || errors_overrun;
    assign down_at = int'(error_at) + PAD_ROWS - int'(from) * STRIDE_ROWS;
    // The pooled row's last row of errors: the next one waits for the next pooled row.
    assign error_take = errors_there && (error_at == BITS'(ROWS_IN - 1)
        || (down_at == STRIDE_ROWS - 1 && from != POOLED'(ROWS - 1)));

    always_comb begin
        spread = '0;
        if (errors_there)
            for (int x = 0; x < COLUMNS; x++)
                for (int across = 0; across < KERNEL_COLUMNS; across++) begin
                    automatic int at = x * STRIDE_COLUMNS - PAD_COLUMNS + across;
                    if (at >= 0 && at < COLUMNS_IN && down_at < KERNEL_ROWS)
                        for (int c = 0; c < CHANNELS; c++)
                            if (int'(place_row[(x*CHANNELS+c)*PLACES+:PLACES]) == down_at * KERNEL_COLUMNS + across
                                && errors[(x*CHANNELS+c)*32+:31] != 31'd0)  // 0 + -0 is +0
                                spread[(at*CHANNELS+c)*32+:32] = errors[(x*CHANNELS+c)*32+:32];
                end
    end

    always_ff @(posedge clk) begin
        if (reset) begin
            error_at <= '0;
            from <= '0;
            error_out_valid <= 1'b0;
        end else begin
            error_out_valid <= errors_there;
            if (errors_there) error_at <= error_at == BITS'(ROWS_IN - 1) ? '0 : error_at + 1'b1;
            if (error_take) from <= error_at == BITS'(ROWS_IN - 1) ? '0 : from + 1'b1;
        end
        error_out_row <= spread;
    end

endmodule
