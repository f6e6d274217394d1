// The words by which the rows of a map are rounded by chance (docs/numbers.md), drawn ahead, while a row is computed:
//
//     key      SEED
//     counter  element / 4; STREAM, of the tensor and what it is rounded for; the sample, low, high
//     word     element % 4
//
// Each of UNITS generators takes a counter in 10 cycles; the counters of a pixel are those that its CHANNELS touch. A row
// takes its words when they are `ready`; those of the next row are 10 * GROUPS + 2 cycles later.
module row_words #(
    parameter int          COLUMNS  = 1,
    parameter int          CHANNELS = 1,
    parameter int          FIRST    = 0,  // of them in the whole map
    parameter int          APART    = 1,  // channels of the whole map
    parameter int          ROWS     = 1,
    parameter logic [31:0] STREAM   = 32'd0,
    parameter logic [63:0] SEED     = 64'd0,
    parameter int          UNITS    = 1
) (
    input  logic                           clk,
    input  logic                           reset,
    input  logic                           take,
    output logic                           ready,
    output logic [COLUMNS*CHANNELS*32-1:0] words
);

    localparam int COUNTERS   = (CHANNELS + 6) / 4;  // of a pixel
    localparam int ALL        = COLUMNS * COUNTERS;
    localparam int GROUPS     = (ALL + UNITS - 1) / UNITS;
    localparam int GROUP_BITS = GROUPS > 1 ? $clog2(GROUPS) : 1;
    localparam int ROW_BITS   = ROWS > 1 ? $clog2(ROWS) : 1;

    // ---- Which row, and which of its counters.

    logic [63:0] sample;
    logic [ROW_BITS-1:0] row;
    logic [GROUP_BITS-1:0] group, drawn_group;
    logic drawing, issue, drawn;
    logic [UNITS-1:0] idle, done;

    assign issue = drawing && idle[0];
    assign drawn = done[0];
    wire unused = &{idle, done};  // all are as the first

    always_ff @(posedge clk) begin
        if (reset) begin
            sample <= '0;
            row <= '0;
            group <= '0;
            drawing <= 1'b1;
            ready <= 1'b0;
        end else begin
            if (take) begin
                row <= row == ROW_BITS'(ROWS - 1) ? '0 : row + 1'b1;
                if (row == ROW_BITS'(ROWS - 1)) sample <= sample + 64'd1;
                drawing <= 1'b1;
                ready <= 1'b0;
            end else if (issue) begin
                group <= group == GROUP_BITS'(GROUPS - 1) ? '0 : group + 1'b1;
                if (group == GROUP_BITS'(GROUPS - 1)) drawing <= 1'b0;
            end
            if (drawn && drawn_group == GROUP_BITS'(GROUPS - 1)) ready <= 1'b1;
        end
        if (issue) drawn_group <= group;
    end

    // ---- The generators.

    logic [ALL*128-1:0] held;

    for (genvar u = 0; u < UNITS; u++) begin : g_units
        int at, pixel, element;
        logic [127:0] four;

        assign at = int'(group) * UNITS + u;
        assign pixel = at / COUNTERS;
        assign element = (int'(row) * COLUMNS + pixel) * APART + FIRST;
        philox generator (
            .clk, .reset, .start(issue),
            .counter({sample, STREAM, 32'(element / 4 + at % COUNTERS)}), .key(SEED),
            .ready(idle[u]), .done(done[u]), .words(four)
        );
        for (genvar g = 0; g * UNITS + u < ALL; g++) begin : g_groups
            always_ff @(posedge clk)
                if (done[u] && drawn_group == GROUP_BITS'(g)) held[(g*UNITS+u)*128+:128] <= four;
        end
    end

    // ---- The words of each value: those of a pixel begin at the place of its first element in its first counter.

    for (genvar column = 0; column < COLUMNS; column++) begin : g_columns
        logic [1:0] place;

        assign place = 2'((int'(row) * COLUMNS + column) * APART + FIRST);
        assign words[column*CHANNELS*32+:CHANNELS*32] =
            (CHANNELS * 32)'(held[column*COUNTERS*128+:COUNTERS*128] >> {place, 5'd0});
    end

endmodule
