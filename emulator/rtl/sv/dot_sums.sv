// The units of PG and the sums of gradients, LGB, where products are added in blocks: of DOT pixels of a sample, row by row
// (`accumulate = "dot:DOT"`). Numbers have no scales.
//
// A unit takes, in a cycle, the pixels of a row that are of one block, for the weight of an input channel at a place of the
// kernel and for two output channels. Where a block goes on in the next row, its exact sum waits (`carried`); with the
// block's last pixel, or the sample's, it is added, once, in fp32. So a row has at most SEGMENTS parts of blocks, and takes
// so many turns of all pairs of weights. This hides the latency of the additions if
//
//     EVERY * floor(PAIRS / UNITS) > LATENCY.
module dot_sums #(
    parameter int INPUTS         = 1,
    parameter int OUTPUTS        = 1,
    parameter int COLUMNS_IN     = 1,
    parameter int COLUMNS        = 1,
    parameter int KERNEL_ROWS    = 1,
    parameter int KERNEL_COLUMNS = 1,
    parameter int STRIDE         = 1,
    parameter int PAD            = 0,
    parameter int UNITS          = 1,  // at most PAIRS
    parameter int DOT            = 8,
    parameter int LANES          = DOT < COLUMNS ? DOT : COLUMNS,
    parameter int SEGMENTS       = 1,
    parameter int STEPS          = 0,  // of a product, as `dot_engine` has it
    parameter int PORT           = 27,
    parameter int DEPTH          = 0,  // latency of the exact sums
    parameter int LATENCY        = 0,  // of the additions
    parameter int READS          = 1,  // words that the update reads at once
    parameter formats::format_t FORMAT = formats::FP32,
    parameter formats::format_t ERRORS = formats::FP32,
    parameter int CODE           = int'(FORMAT.bits) + (FORMAT.block != 17'd0 ? 8 : 0),
    parameter int ERROR_CODE     = int'(ERRORS.bits) + (ERRORS.block != 17'd0 ? 8 : 0),
    parameter int TAPS           = KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int WORDS          = INPUTS * OUTPUTS * TAPS,
    parameter int WORD_BITS      = $clog2(WORDS + READS),
    parameter int PLACE_BITS     = DOT > 1 ? $clog2(DOT) : 1
) (
    input  logic                                          clk,
    input  logic                                          reset,
    input  logic                                          start,
    input  logic                                          issue,
    input  logic                                          last,
    // Held while a row is issued: the place of its first pixel in a block; whether that is the first block of the mini-batch,
    // with which sums begin at +0; and whether no row of the sample follows.
    input  logic [PLACE_BITS-1:0]                         place,
    input  logic                                          first_block,
    input  logic                                          last_row,
    input  logic [KERNEL_ROWS*COLUMNS_IN*INPUTS*CODE-1:0] rows,
    input  logic [COLUMNS*OUTPUTS*ERROR_CODE-1:0]         errors,
    output logic                                          done,       // a row's sums are complete
    input  logic [WORD_BITS-1:0]                          read_address,
    output logic [READS*32-1:0]                           read
);

    localparam int WIDTH        = 8;
    localparam int OUTPUT_PAIRS = (OUTPUTS + 1) / 2;
    localparam int FACTORS      = INPUTS * TAPS;
    localparam int PAIR_BITS    = OUTPUT_PAIRS > 1 ? $clog2(OUTPUT_PAIRS) : 1;
    localparam int FACTOR_BITS  = FACTORS > 1 ? $clog2(FACTORS) : 1;
    localparam int OUTER_BITS   = $clog2(SEGMENTS + UNITS / (OUTPUT_PAIRS * FACTORS) + 2);
    localparam int ENTRY_BITS   = WORDS > 1 ? $clog2(WORDS) : 1;
    localparam int X_VALUES     = KERNEL_ROWS * COLUMNS_IN * INPUTS;
    localparam int DY_VALUES    = COLUMNS * OUTPUTS;
    localparam int X_BITS       = $clog2(X_VALUES * WIDTH);
    localparam int DY_BITS      = $clog2(DY_VALUES * WIDTH);
    localparam int BITS         = 2 * WIDTH - 1 + $clog2(DOT);
    localparam int PARTIAL_BITS = 2 * WIDTH - 1 + $clog2(LANES);

    logic [X_VALUES*WIDTH-1:0] x_numbers;
    logic [DY_VALUES*WIDTH-1:0] dy_numbers;
    logic [X_VALUES*8-1:0] x_scales;
    logic [DY_VALUES*8-1:0] dy_scales;
    wire unused = &{x_scales, dy_scales};  // those of 1

    whole_numbers #(.FORMAT(FORMAT), .VALUES(X_VALUES), .WIDTH(WIDTH)) activations (
        .codes(rows), .numbers(x_numbers), .scales(x_scales)
    );
    whole_numbers #(.FORMAT(ERRORS), .VALUES(DY_VALUES), .WIDTH(WIDTH)) output_errors (
        .codes(errors), .numbers(dy_numbers), .scales(dy_scales)
    );

    logic [31:0] sums[WORDS];
    logic signed [BITS-1:0] carried[WORDS];
    logic [2*UNITS*BITS-1:0] total_late;
    logic [2*UNITS*ENTRY_BITS-1:0] word_late, word_done;
    logic [2*UNITS-1:0] goes_on, active_done;
    logic [2*UNITS*32-1:0] y_done;

    for (genvar u = 0; u < UNITS; u++) begin : g_units

        // ---- Which weights, and which part of a block, whose first pixel is that of column `begins`.
        // Lanes are pixels of the block, or, where that is longer than a row, columns.

        logic [PAIR_BITS-1:0] pair;
        logic [FACTOR_BITS-1:0] factor;
        logic [OUTER_BITS-1:0] outer;
        logic active, is_part, first, fresh, whole;
        int input_channel, tap, down, across, begins;

        conv_counter #(
            .CHANNELS(OUTPUT_PAIRS), .COLUMNS(FACTORS), .OUTERS(SEGMENTS), .STEP(UNITS), .FIRST(u)
        ) counter (
            .clk, .restart(start), .advance(issue), .channel(pair), .column(factor), .outer, .active
        );
        assign input_channel = int'(factor) / TAPS;
        assign tap = int'(factor) % TAPS;
        assign down = tap / KERNEL_COLUMNS;
        assign across = tap % KERNEL_COLUMNS;
        assign begins = int'(outer) * DOT - int'(place);
        assign is_part = active && begins < COLUMNS;
        assign first = first_block && outer == '0;
        assign fresh = begins >= 0;
        assign whole = begins + DOT <= COLUMNS || last_row;

        // ---- Operands, and the exact sums.

        logic [LANES*WIDTH-1:0] x, x_operand;
        logic [2*LANES*WIDTH-1:0] dy, dy_operand;
        logic [2*PARTIAL_BITS-1:0] products;
        logic [2*ENTRY_BITS-1:0] word, word_operand;
        logic [1:0] there, there_operand, there_late;
        logic first_operand, fresh_operand, whole_operand, first_late, fresh_late, whole_late;

        for (genvar lane = 0; lane < LANES; lane++) begin : g_lanes
            int column, at;
            logic is_there, in_map;

            assign column = LANES == DOT ? begins + lane : lane;
            assign is_there = is_part && column >= 0 && column >= begins && column < COLUMNS && column < begins + DOT;
            assign at = column * STRIDE + across - PAD;
            assign in_map = is_there && at >= 0 && at < COLUMNS_IN;
            assign x[lane*WIDTH+:WIDTH] = in_map
                ? x_numbers[X_BITS'(((down*COLUMNS_IN+at)*INPUTS+input_channel)*WIDTH)+:WIDTH] : '0;
            for (genvar which = 0; which < 2; which++) begin : g_errors
                int channel;

                assign channel = 2 * int'(pair) + which;
                assign dy[(which*LANES+lane)*WIDTH+:WIDTH] = is_there && channel < OUTPUTS
                    ? dy_numbers[DY_BITS'((column*OUTPUTS+channel)*WIDTH)+:WIDTH] : '0;
            end
        end
        for (genvar which = 0; which < 2; which++) begin : g_words
            int channel;

            assign channel = 2 * int'(pair) + which;
            assign there[which] = is_part && issue && channel < OUTPUTS;
            assign word[which*ENTRY_BITS+:ENTRY_BITS] = channel < OUTPUTS
                ? ENTRY_BITS'((channel * INPUTS + input_channel) * TAPS + tap) : '0;
        end
        always_ff @(posedge clk) begin
            x_operand <= x;
            dy_operand <= dy;
            word_operand <= word;
            there_operand <= there;
            first_operand <= first;
            fresh_operand <= fresh;
            whole_operand <= whole;
        end
        dot_product #(.LANES(LANES), .WIDTH(WIDTH), .PORT(PORT), .LATENCY(DEPTH)) exact (
            .clk, .x(x_operand), .w(dy_operand), .sums(products)
        );
        registers #(.WIDTH(2 * ENTRY_BITS + 5), .STAGES(DEPTH)) beside (
            .clk, .d({word_operand, there_operand, first_operand, fresh_operand, whole_operand}),
            .q({word_late[2*u*ENTRY_BITS+:2*ENTRY_BITS], there_late, first_late, fresh_late, whole_late})
        );

        // ---- What is carried on, and the additions.

        for (genvar which = 0; which < 2; which++) begin : g_channels
            localparam int ONE = 2 * u + which;

            logic [ENTRY_BITS-1:0] own;
            logic signed [PARTIAL_BITS-1:0] product;
            logic signed [BITS-1:0] total;
            logic [31:0] addend;

            assign own = word_late[ONE*ENTRY_BITS+:ENTRY_BITS];
            assign product = products[which*PARTIAL_BITS+:PARTIAL_BITS];
            assign total = BITS'(product) + (fresh_late ? '0 : carried[own]);
            assign total_late[ONE*BITS+:BITS] = total;
            assign goes_on[ONE] = there_late[which] && !whole_late;
            assign addend = first_late ? '0 : sums[own];
            fp32_sum #(.LATENCY(LATENCY), .BITS(BITS)) add (
                .clk, .sum(total), .is_nothing(1'b0), .exponent(11'(STEPS)), .is_nan(1'b0), .c(addend),
                .y(y_done[ONE*32+:32])
            );
            registers #(.WIDTH(ENTRY_BITS + 1), .STAGES(LATENCY)) alongside (
                .clk, .d({own, there_late[which] && whole_late}),
                .q({word_done[ONE*ENTRY_BITS+:ENTRY_BITS], active_done[ONE]})
            );
        end
    end

    always_ff @(posedge clk)
        for (int i = 0; i < 2 * UNITS; i++) begin
            if (goes_on[i]) carried[word_late[i*ENTRY_BITS+:ENTRY_BITS]] <= total_late[i*BITS+:BITS];
            if (active_done[i]) sums[word_done[i*ENTRY_BITS+:ENTRY_BITS]] <= y_done[i*32+:32];
        end

    registers #(.WIDTH(1), .STAGES(DEPTH + LATENCY + 2)) row_done (.clk, .d(last && !reset), .q(done));

    for (genvar r = 0; r < READS; r++) begin : g_reads
        int word;

        assign word = int'(read_address) + r;
        assign read[r*32+:32] = sums[word < WORDS ? ENTRY_BITS'(word) : '0];
    end

endmodule
