// The engine of FP, and of EB, whose products are added in blocks (`accumulate = "dot:DOT"`): UNITS that each take, in a
// cycle, DOT channels of what is read at one place of the kernel, for two channels of the results. A block's sum is exact
// (`dot_product`), and is added once, in fp32, to the sum that it belongs to (`fp32_sum`).
//
// Blocks come as the sums take them: in FP blocks of input channels ascending, in EB (BACKWARD) of output channels
// descending, and of each the places of the kernel ascending. For a block at a place all sums take theirs before the next
// comes, so those of one sum are COLUMNS * PAIRS apart, which hides the latency of the addition if
//
//     EVERY * floor(COLUMNS * PAIRS / UNITS) > LATENCY.
//
// Numbers are codes of whole numbers in two's complement. Those in blocks have a scale (E8M0) for SHARED channels, a
// multiple of DOT, beside them. A number is its code times 2^STEP, or, of a product, 2^STEPS, and its scale.
module dot_engine #(
    parameter int BACKWARD       = 0,
    parameter int OUTERS         = 1,  // channels of what is read
    parameter int CHANNELS       = 1,
    parameter int COLUMNS        = 1,
    parameter int COLUMNS_READ   = 1,
    parameter int KERNEL_ROWS    = 1,
    parameter int KERNEL_COLUMNS = 1,
    parameter int STRIDE         = 1,  // of columns
    parameter int PAD            = 0,  // of columns
    parameter int UNITS          = 1,  // at most as many as there are pairs of sums
    parameter int DOT            = 8,
    parameter int WIDTH          = 8,
    parameter int SHARED         = 0,  // channels of a scale; 0: there are none
    parameter int STEPS          = 0,
    parameter int PORT           = 27,
    parameter int DEPTH          = 0,  // latency of the exact sums
    parameter int LATENCY        = 0,  // of the additions
    // Sums of a row, pairs of channels, blocks and scales of a pixel; words of weights, and bits of an address.
    parameter int SUMS           = COLUMNS * CHANNELS,
    parameter int PAIRS          = (CHANNELS + 1) / 2,
    parameter int TAPS           = KERNEL_ROWS * KERNEL_COLUMNS,
    parameter int BLOCKS         = (OUTERS + DOT - 1) / DOT,
    parameter int SCALES         = SHARED > 0 ? (OUTERS + SHARED - 1) / SHARED : 1,
    parameter int WORDS          = CHANNELS * BLOCKS * TAPS,
    parameter int ENTRY_BITS     = WORDS > 1 ? $clog2(WORDS) : 1
) (
    input  logic                                             clk,
    input  logic                                             reset,
    input  logic                                             start,
    input  logic                                             issue,
    input  logic                                             last,
    input  logic [KERNEL_ROWS*COLUMNS_READ*OUTERS*WIDTH-1:0] rows,     // line buffers
    input  logic [KERNEL_ROWS*COLUMNS_READ*SCALES*8-1:0]     scales,
    input  logic [KERNEL_ROWS-1:0]                           rows_reach,
    input  logic [SUMS*32-1:0]                               partial,  // what the sums start from
    output logic [2*UNITS*ENTRY_BITS-1:0]                    entry,    // of each unit's two channels: (channel, block, place)
    input  logic [2*UNITS*DOT*WIDTH-1:0]                     weights,
    input  logic [2*UNITS*8-1:0]                             weight_scales,
    output logic                                             out_valid,
    output logic [SUMS*32-1:0]                               out_row
);

    localparam int OUTERMOST   = BLOCKS * TAPS;
    localparam int PAIR_BITS   = PAIRS > 1 ? $clog2(PAIRS) : 1;
    localparam int COLUMN_BITS = COLUMNS > 1 ? $clog2(COLUMNS) : 1;
    localparam int OUTER_BITS  = $clog2(OUTERMOST + UNITS / (COLUMNS * PAIRS) + 2);
    localparam int SUM_BITS    = SUMS > 1 ? $clog2(SUMS) : 1;
    localparam int PART_BITS   = $clog2(SUMS * 32);
    localparam int TAP_BITS    = KERNEL_ROWS > 1 ? $clog2(KERNEL_ROWS) : 1;
    localparam int ROW         = COLUMNS_READ * OUTERS * WIDTH;
    localparam int ROW_BITS    = $clog2(ROW);
    localparam int SCALE_ROW   = COLUMNS_READ * SCALES * 8;
    localparam int SCALE_BITS  = $clog2(SCALE_ROW);
    localparam int BITS        = 2 * WIDTH - 1 + $clog2(DOT);

    logic [31:0] sums[SUMS];
    logic [2*UNITS*32-1:0] y_done;
    logic [2*UNITS*SUM_BITS-1:0] sum_done;
    logic [2*UNITS-1:0] active_done;
    logic [UNITS-1:0] final_done;

    // ---- Line buffers by rows.

    logic [ROW-1:0] buffers[KERNEL_ROWS];
    logic [SCALE_ROW-1:0] buffered_scales[KERNEL_ROWS];

    for (genvar tap = 0; tap < KERNEL_ROWS; tap++) begin : g_rows
        assign buffers[tap] = rows[tap*ROW+:ROW];
        assign buffered_scales[tap] = scales[tap*SCALE_ROW+:SCALE_ROW];
    end

    for (genvar u = 0; u < UNITS; u++) begin : g_units

        // ---- Which block, of which two sums.

        logic [PAIR_BITS-1:0] pair;
        logic [COLUMN_BITS-1:0] column;
        logic [OUTER_BITS-1:0] outer;
        logic active;
        int tap, across, block, place, at;
        logic [TAP_BITS-1:0] down;
        logic in_phase, in_map, reaches;

        conv_counter #(
            .CHANNELS(PAIRS), .COLUMNS(COLUMNS), .OUTERS(OUTERMOST), .STEP(UNITS), .FIRST(u)
        ) counter (
            .clk, .restart(start), .advance(issue), .channel(pair), .column, .outer, .active
        );
        assign tap = active ? int'(outer) % TAPS : 0;
        assign block = !active ? 0 : BACKWARD != 0 ? BLOCKS - 1 - int'(outer) / TAPS : int'(outer) / TAPS;
        assign down = TAP_BITS'(tap / KERNEL_COLUMNS);
        assign across = tap % KERNEL_COLUMNS;

        // ---- What is read, as `window` has it; places outside the map, and beyond the last channel, are zeros.

        if (BACKWARD == 0) begin : g_forward
            assign place = int'(column) * STRIDE + across - PAD;
            assign at = place;
            assign in_phase = 1'b1;
        end else begin : g_backward
            assign place = int'(column) + PAD + STRIDE * KERNEL_COLUMNS - across;  // not negative
            assign at = place / STRIDE - KERNEL_COLUMNS;
            assign in_phase = place % STRIDE == 0;
        end
        assign in_map = in_phase && at >= 0 && at < COLUMNS_READ;
        assign reaches = in_phase && rows_reach[down];

        logic [ROW-1:0] row;
        logic [SCALE_ROW-1:0] row_scales;
        logic [DOT*WIDTH-1:0] x;
        logic [7:0] x_scale;

        assign row = buffers[down];
        assign row_scales = buffered_scales[down];
        assign x_scale = in_map && SHARED > 0
            ? row_scales[SCALE_BITS'((at * SCALES + block * DOT / (SHARED > 0 ? SHARED : 1)) * 8)+:8] : 8'd127;
        for (genvar lane = 0; lane < DOT; lane++) begin : g_lanes
            logic is_there;

            assign is_there = in_map && reaches && block * DOT + lane < OUTERS;
            assign x[lane*WIDTH+:WIDTH] =
                is_there ? row[ROW_BITS'((at * OUTERS + block * DOT + lane) * WIDTH)+:WIDTH] : '0;
        end

        // ---- Operands, and the exact sums.

        logic [DOT*WIDTH-1:0] x_operand;
        logic [2*DOT*WIDTH-1:0] w_operand;
        logic [2*BITS-1:0] products;
        logic [2*SUM_BITS-1:0] sum_operand, sum_late;
        logic [2*11-1:0] exponent_operand, exponent_late;
        logic [1:0] nan_operand, nan_late, there_operand, there_late;
        logic [2*32-1:0] partial_operand, partial_late;
        logic first_operand, first_late, final_operand, final_late, reaches_operand, reaches_late;

        always_ff @(posedge clk) begin
            x_operand <= x;
            w_operand <= weights[u*2*DOT*WIDTH+:2*DOT*WIDTH];
            first_operand <= outer == '0;
            final_operand <= outer == OUTER_BITS'(OUTERMOST - 1);
            reaches_operand <= reaches;
        end
        dot_product #(.LANES(DOT), .WIDTH(WIDTH), .PORT(PORT), .LATENCY(DEPTH)) exact (
            .clk, .x(x_operand), .w(w_operand), .sums(products)
        );
        registers #(.WIDTH(2 * (SUM_BITS + 11 + 1 + 1 + 32) + 3), .STAGES(DEPTH)) beside (
            .clk,
            .d({
                sum_operand, exponent_operand, nan_operand, there_operand, partial_operand, first_operand, final_operand,
                reaches_operand
            }),
            .q({
                sum_late, exponent_late, nan_late, there_late, partial_late, first_late, final_late, reaches_late
            })
        );

        for (genvar which = 0; which < 2; which++) begin : g_channels
            int channel;
            logic is_there;
            logic [SUM_BITS-1:0] sum;
            logic [7:0] w_scale;
            logic [31:0] addend;

            assign is_there = 2 * int'(pair) + which < CHANNELS;
            assign channel = is_there ? 2 * int'(pair) + which : 0;
            assign sum = SUM_BITS'(int'(column) * CHANNELS + channel);
            assign entry[(2*u+which)*ENTRY_BITS+:ENTRY_BITS] = ENTRY_BITS'((channel * BLOCKS + block) * TAPS + tap);
            assign w_scale = SHARED > 0 ? weight_scales[(2*u+which)*8+:8] : 8'd127;
            always_ff @(posedge clk) begin
                sum_operand[which*SUM_BITS+:SUM_BITS] <= sum;
                exponent_operand[which*11+:11] <= 11'(x_scale) + 11'(w_scale) + 11'(STEPS - 254);
                nan_operand[which] <= reaches && (x_scale == 8'd255 || w_scale == 8'd255);
                there_operand[which] <= active && issue && is_there;
                partial_operand[which*32+:32] <= partial[PART_BITS'({sum, 5'd0})+:32];
            end

            // ---- The additions. A place that does not reach adds -0, which changes no sum.

            assign addend =
                first_late ? partial_late[which*32+:32] : sums[sum_late[which*SUM_BITS+:SUM_BITS]];
            fp32_sum #(.LATENCY(LATENCY), .BITS(BITS)) add (
                .clk, .sum(products[which*BITS+:BITS]), .is_nothing(!reaches_late),
                .exponent(exponent_late[which*11+:11]), .is_nan(nan_late[which]), .c(addend),
                .y(y_done[(2*u+which)*32+:32])
            );
            registers #(.WIDTH(SUM_BITS + 1), .STAGES(LATENCY)) alongside (
                .clk, .d({sum_late[which*SUM_BITS+:SUM_BITS], there_late[which]}),
                .q({sum_done[(2*u+which)*SUM_BITS+:SUM_BITS], active_done[2*u+which]})
            );
        end
        registers #(.WIDTH(1), .STAGES(LATENCY)) final_too (.clk, .d(final_late), .q(final_done[u]));
    end

    // ---- Where the results go.

    always_ff @(posedge clk)
        for (int i = 0; i < 2 * UNITS; i++)
            if (active_done[i]) begin
                if (final_done[i/2]) out_row[PART_BITS'({sum_done[i*SUM_BITS+:SUM_BITS], 5'd0})+:32] <= y_done[i*32+:32];
                else sums[sum_done[i*SUM_BITS+:SUM_BITS]] <= y_done[i*32+:32];
            end

    registers #(.WIDTH(1), .STAGES(DEPTH + LATENCY + 2)) row_done (.clk, .d(last && !reset), .q(out_valid));

endmodule
