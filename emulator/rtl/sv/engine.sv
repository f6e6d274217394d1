// The engine of FP, and of EB: tiles that take the convolutions of a row in turn, and the sums of that row (FPDeep,
// sections 5.3 and 5.4). A row has COLUMNS * CHANNELS sums, each over OUTERS channels of what is read: input channels
// ascending in FP, output channels descending in EB (BACKWARD). Of a channel all sums take their products before the
// next channel comes; so the products of one sum are COLUMNS * CHANNELS convolutions apart, which hides the latency of
// the multiply-adds if
//
//     EVERY * floor(COLUMNS * CHANNELS / TILES) > KERNEL * KERNEL * LATENCY.
//
// Tiles beyond the number of sums take products of the same sums, of the next channels, after one another: they are
// chained, and EVERY * 1 must then be more than the latency of the whole chain. With a LATENCY of 0 all of this holds
// with EVERY = 1.
module engine #(
    parameter int BACKWARD       = 0,
    parameter int OUTERS         = 1,
    parameter int CHANNELS       = 1,
    parameter int COLUMNS        = 1,
    parameter int COLUMNS_READ   = 1,
    parameter int KERNEL_ROWS    = 1,
    parameter int KERNEL_COLUMNS = 1,
    parameter int STRIDE         = 1,  // of columns
    parameter int PAD            = 0,  // of columns
    parameter int TILES          = 1,
    parameter int LATENCY        = 0,
    parameter int WEIGHTS        = 1,  // words of LPRAM
    // Of what is read, and of the factors, as `fp32_fma` has them.
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int CODE           = int'(FORMAT.bits) + (FORMAT.block != 17'd0 ? 8 : 0),
    parameter int SIGNIFICAND    = 24,
    parameter int SUBNORMAL      = 1,
    // Sums of a row; multiply-adds of a tile; bits of an address of LPRAM.
    parameter int SUMS           = COLUMNS * CHANNELS,
    parameter int TAPS           = KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int ENTRY_BITS     = WEIGHTS > 1 ? $clog2(WEIGHTS) : 1
) (
    input  logic                                            clk,
    input  logic                                            reset,
    input  logic                                            start,
    input  logic                                            issue,
    input  logic                                            last,
    input  logic [KERNEL_ROWS*COLUMNS_READ*OUTERS*CODE-1:0] rows,     // line buffers
    input  logic [KERNEL_ROWS-1:0]                          rows_reach,
    input  logic [SUMS*32-1:0]                              partial,  // what the sums start from
    output logic [TILES*ENTRY_BITS-1:0]                     entry,    // each tile's first weight in LPRAM
    input  logic [TILES*TAPS*32-1:0]                        weights,
    output logic                                            out_valid,
    output logic [SUMS*32-1:0]                              out_row
);

    localparam int CHANNEL_BITS = CHANNELS > 1 ? $clog2(CHANNELS) : 1;
    localparam int COLUMN_BITS  = COLUMNS > 1 ? $clog2(COLUMNS) : 1;
    localparam int OUTER_BITS   = $clog2(OUTERS + TILES / SUMS + 2);
    localparam int READ_BITS    = OUTERS > 1 ? $clog2(OUTERS) : 1;
    localparam int SUM_BITS     = SUMS > 1 ? $clog2(SUMS) : 1;
    localparam int PART_BITS    = $clog2(SUMS * 32);
    localparam int CHAINED      = (TILES + SUMS - 1) / SUMS;  // tiles that work on one sum after another
    localparam int DEPTH        = CHAINED * TAPS * LATENCY;

    logic [31:0] sums[SUMS];
    logic [TILES*32-1:0] y_done;
    logic [TILES*SUM_BITS-1:0] sum_done;
    logic [TILES-1:0] final_done, active_done;

    for (genvar t = 0; t < TILES; t++) begin : g_tiles
        localparam int SKEW = t / SUMS * TAPS * LATENCY;
        localparam int DONE = SKEW + TAPS * LATENCY;

        // ---- Which convolution, and what it takes.

        logic [CHANNEL_BITS-1:0] channel;
        logic [COLUMN_BITS-1:0] column;
        logic [OUTER_BITS-1:0] outer;
        logic [READ_BITS-1:0] read;
        logic [SUM_BITS-1:0] sum;
        logic active;
        logic [TAPS*32-1:0] x;
        logic [TAPS-1:0] reaches;

        conv_counter #(
            .CHANNELS(CHANNELS), .COLUMNS(COLUMNS), .OUTERS(OUTERS), .STEP(TILES), .FIRST(t)
        ) counter (
            .clk, .restart(start), .advance(issue), .channel, .column, .outer, .active
        );
        assign sum = SUM_BITS'(int'(column) * CHANNELS + int'(channel));
        assign read = active ? READ_BITS'(BACKWARD != 0 ? OUTERS - 1 - int'(outer) : int'(outer)) : '0;
        assign entry[t*ENTRY_BITS+:ENTRY_BITS] = ENTRY_BITS'(TAPS * (BACKWARD != 0
            ? int'(read) * CHANNELS + int'(channel)
            : int'(channel) * OUTERS + int'(read)));

        window #(
            .BACKWARD(BACKWARD), .CHANNELS(OUTERS), .COLUMNS(COLUMNS_READ), .KERNEL_ROWS(KERNEL_ROWS),
            .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE(STRIDE), .PAD(PAD), .CHANNEL_BITS(READ_BITS),
            .COLUMN_BITS(COLUMN_BITS), .FORMAT(FORMAT)
        ) taken (
            .rows, .rows_reach, .column, .channel(read), .x, .reaches
        );

        // ---- Operands. A place that does not reach adds -0, which changes no sum.

        logic [TAPS*32-1:0] x_operand, w_operand;
        logic [31:0] partial_operand;
        logic [SUM_BITS-1:0] sum_operand;
        logic first_operand, final_operand, active_operand;

        always_ff @(posedge clk) begin
            for (int tap = 0; tap < TAPS; tap++) begin
                x_operand[tap*32+:32] <= reaches[tap] ? x[tap*32+:32] : 32'h8000_0000;
                w_operand[tap*32+:32] <= reaches[tap] ? weights[(t*TAPS+tap)*32+:32] : 32'd0;
            end
            partial_operand <= partial[PART_BITS'({sum, 5'd0})+:32];
            sum_operand <= sum;
            first_operand <= outer == '0;
            final_operand <= outer == OUTER_BITS'(OUTERS - 1);
            active_operand <= active && issue;
        end

        // ---- The multiply-adds.

        logic [31:0] addend, y;

        if (t < SUMS) begin : g_own
            assign addend = first_operand ? partial_operand : sums[sum_operand];
        end else begin : g_chained
            wire unused = &{partial_operand, first_operand};
            assign addend = g_tiles[t-SUMS].y;
        end
        tile #(
            .TAPS(TAPS), .LATENCY(LATENCY), .SKEW(SKEW), .SIGNIFICAND(SIGNIFICAND), .SUBNORMAL(SUBNORMAL)
        ) of (
            .clk, .x(x_operand), .w(w_operand), .sum(addend), .y
        );

        // ---- Where the result goes.

        registers #(.WIDTH(SUM_BITS + 2), .STAGES(DONE)) alongside (
            .clk, .d({sum_operand, final_operand, active_operand}),
            .q({sum_done[t*SUM_BITS+:SUM_BITS], final_done[t], active_done[t]})
        );
        assign y_done[t*32+:32] = y;
    end

    // Of tiles that are chained, the last one's result stays.
    always_ff @(posedge clk)
        for (int t = 0; t < TILES; t++)
            if (active_done[t]) begin
                if (final_done[t]) out_row[PART_BITS'({sum_done[t*SUM_BITS+:SUM_BITS], 5'd0})+:32] <= y_done[t*32+:32];
                else sums[sum_done[t*SUM_BITS+:SUM_BITS]] <= y_done[t*32+:32];
            end

    registers #(.WIDTH(1), .STAGES(DEPTH + 2)) row_done (.clk, .d(last && !reset), .q(out_valid));

endmodule
