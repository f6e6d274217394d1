// The tiles of PG and the sums of gradients, LGB (FPDeep, sections 5.2.2 and 5.5): "we cut K x K large convolutions into
// W x W small convolutions". For a pixel of the output errors a tile multiplies its error with the K x K activations
// under the window, and adds each product to the sum of another weight. Pixels are taken in order, and for each pixel all
// pairs of channels; so the products of one sum are INPUTS * OUTPUTS convolutions apart, and come by sample, row and
// column. This hides the latency of the multiply-adds if EVERY * floor(INPUTS * OUTPUTS / TILES) > LATENCY; tiles beyond
// the number of pairs are chained, as in `engine`.
module gradient_sums #(
    parameter int INPUTS         = 1,
    parameter int OUTPUTS        = 1,
    parameter int COLUMNS_IN     = 1,
    parameter int COLUMNS        = 1,
    parameter int KERNEL_ROWS    = 1,
    parameter int KERNEL_COLUMNS = 1,
    parameter int STRIDE         = 1,
    parameter int PAD            = 0,
    parameter int TILES          = 1,
    parameter int LATENCY        = 0,
    parameter int READS          = 1,  // words that the update reads at once
    // Of activations and errors, and of the factors, as `fp32_fma` has them.
    parameter formats::format_t FORMAT = formats::FP32,
    parameter formats::format_t ERRORS = formats::FP32,
    parameter int CODE           = int'(FORMAT.bits) + (FORMAT.block != 17'd0 ? 8 : 0),
    parameter int ERROR_CODE     = int'(ERRORS.bits) + (ERRORS.block != 17'd0 ? 8 : 0),
    parameter int SIGNIFICAND    = 24,
    parameter int SUBNORMAL      = 1,
    parameter int TAPS           = KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int WORDS          = INPUTS * OUTPUTS * TAPS,
    parameter int WORD_BITS      = $clog2(WORDS + READS)
) (
    input  logic                                          clk,
    input  logic                                          reset,
    input  logic                                          start,
    input  logic                                          issue,
    input  logic                                          last,
    input  logic                                          first_row,  // of the mini-batch: sums begin at +0
    input  logic [KERNEL_ROWS*COLUMNS_IN*INPUTS*CODE-1:0] rows,
    input  logic [COLUMNS*OUTPUTS*ERROR_CODE-1:0]         errors,
    output logic                                          done,       // a row's sums are complete
    input  logic [WORD_BITS-1:0]                          read_address,
    output logic [READS*32-1:0]                           read
);

    localparam int PAIRS        = INPUTS * OUTPUTS;
    localparam int CHANNEL_BITS = INPUTS > 1 ? $clog2(INPUTS) : 1;
    localparam int OUTPUT_BITS  = OUTPUTS > 1 ? $clog2(OUTPUTS) : 1;
    localparam int OUTER_BITS   = $clog2(COLUMNS + TILES / PAIRS + 2);
    localparam int COLUMN_BITS  = COLUMNS > 1 ? $clog2(COLUMNS) : 1;
    localparam int PAIR_BITS    = PAIRS > 1 ? $clog2(PAIRS) : 1;
    localparam int ERROR_BITS   = $clog2(COLUMNS * OUTPUTS * ERROR_CODE);
    localparam int CHAINED      = (TILES + PAIRS - 1) / PAIRS;
    localparam int DEPTH        = CHAINED * LATENCY;

    logic [TAPS*32-1:0] sums[PAIRS];
    logic [TILES*TAPS*32-1:0] y_done;
    logic [TILES*PAIR_BITS-1:0] pair_done;
    logic [TILES-1:0] active_done;

    for (genvar t = 0; t < TILES; t++) begin : g_tiles
        localparam int SKEW = t / PAIRS * LATENCY;

        logic [CHANNEL_BITS-1:0] channel;
        logic [OUTPUT_BITS-1:0] out;
        logic [OUTER_BITS-1:0] outer;
        logic [COLUMN_BITS-1:0] column;
        logic [PAIR_BITS-1:0] pair;
        logic active;
        logic [TAPS*32-1:0] x;
        logic [TAPS-1:0] reaches;

        conv_counter #(
            .CHANNELS(INPUTS), .COLUMNS(OUTPUTS), .OUTERS(COLUMNS), .STEP(TILES), .FIRST(t)
        ) counter (
            .clk, .restart(start), .advance(issue), .channel, .column(out), .outer, .active
        );
        assign column = active ? COLUMN_BITS'(outer) : '0;
        assign pair = PAIR_BITS'(int'(out) * INPUTS + int'(channel));

        window #(
            .CHANNELS(INPUTS), .COLUMNS(COLUMNS_IN), .KERNEL_ROWS(KERNEL_ROWS), .KERNEL_COLUMNS(KERNEL_COLUMNS),
            .STRIDE(STRIDE), .PAD(PAD), .CHANNEL_BITS(CHANNEL_BITS), .COLUMN_BITS(COLUMN_BITS),
            .FORMAT(FORMAT)
        ) taken (
            .rows, .rows_reach('1), .column, .channel, .x, .reaches
        );
        wire unused = &reaches;

        logic [TAPS*32-1:0] x_operand;
        logic [31:0] error, error_operand;
        logic [PAIR_BITS-1:0] pair_operand;
        logic first_operand, active_operand;

        unpack #(.FORMAT(ERRORS)) value (
            .code(errors[ERROR_BITS'((int'(column) * OUTPUTS + int'(out)) * ERROR_CODE)+:ERROR_CODE]), .x(error)
        );

        always_ff @(posedge clk) begin
            x_operand <= x;
            error_operand <= error;
            pair_operand <= pair;
            first_operand <= first_row && outer == '0;
            active_operand <= active && issue;
        end

        logic [TAPS*32-1:0] addend, y;

        if (t < PAIRS) begin : g_own
            assign addend = first_operand ? '0 : sums[pair_operand];
        end else begin : g_chained
            wire unused_first = first_operand;
            assign addend = g_tiles[t-PAIRS].y;
        end
        for (genvar tap = 0; tap < TAPS; tap++) begin : g_taps
            tile #(
                .TAPS(1), .LATENCY(LATENCY), .SKEW(SKEW), .SIGNIFICAND(SIGNIFICAND), .SUBNORMAL(SUBNORMAL)
            ) of (
                .clk, .x(x_operand[tap*32+:32]), .w(error_operand), .sum(addend[tap*32+:32]), .y(y[tap*32+:32])
            );
        end
        registers #(.WIDTH(PAIR_BITS + 1), .STAGES(SKEW + LATENCY)) alongside (
            .clk, .d({pair_operand, active_operand}), .q({pair_done[t*PAIR_BITS+:PAIR_BITS], active_done[t]})
        );
        assign y_done[t*TAPS*32+:TAPS*32] = y;
    end

    always_ff @(posedge clk)
        for (int t = 0; t < TILES; t++)
            if (active_done[t]) sums[pair_done[t*PAIR_BITS+:PAIR_BITS]] <= y_done[t*TAPS*32+:TAPS*32];

    registers #(.WIDTH(1), .STAGES(DEPTH + 2)) row_done (.clk, .d(last && !reset), .q(done));

    for (genvar r = 0; r < READS; r++) begin : g_reads
        int word;
        logic [TAPS*32-1:0] of_pair;

        assign word = int'(read_address) + r;
        assign of_pair = sums[word < WORDS ? PAIR_BITS'(word / TAPS) : '0];
        assign read[r*32+:32] = of_pair[word%TAPS*32+:32];
    end

endmodule
