// A slice of a layer on its device (FPDeep, Fig. 12): FP, EB and PG, Act-RAM, LPRAM, LGB, the memory of output errors,
// and the multiplexers of the data paths 1 to 4.
//
//     path 1   x       -> Act-RAM; `passed` goes on: the channels of the slices to come (ICP), or all (OCP)
//     path 2   before  -> ICP: FP's sums start from it. OCP: the outputs so far, to which FP's are joined.   -> y
//     path 3   dy      -> errors of the outputs; `dy_passed` goes on: all (ICP), or those before this slice's (OCP)
//     path 4   beyond  -> ICP: errors of the inputs of the slices to come, joined to EB's. OCP: EB's sums start
//                         from it.                                                                            -> dx
//
// A layer that takes images has no EB. FLAT: a fully connected layer, whose map is a row of one column.
module slice #(
    parameter int ICP            = 1,
    parameter int IS_FIRST       = 1,
    parameter int IS_LAST        = 1,
    parameter int HAS_EB         = 1,
    parameter int FLAT           = 0,
    parameter int ARRIVING       = 1,  // channels of x
    parameter int INPUTS         = 1,  // of the slice, the first of them
    parameter int BEFORE         = 0,  // output channels of slices before it, under OCP
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
    parameter int FP_TILES       = 1,
    parameter int FP_EVERY       = 1,
    parameter int EB_TILES       = 1,
    parameter int EB_EVERY       = 1,
    parameter int PG_TILES       = 1,
    parameter int PG_EVERY       = 1,
    parameter int LANES          = 1,
    parameter int LATENCY        = 0,
    parameter int SLOTS          = 1,  // samples in flight
    parameter int DEPTH          = 2,  // rows that wait for others
    // Formats, and of the engines' factors what `fp32_fma` has of them. Rows outside memories and line buffers are fp32.
    parameter formats::format_t ACTIVATIONS = formats::FP32,
    parameter formats::format_t WEIGHT      = formats::FP32,
    parameter formats::format_t ERRORS      = formats::FP32,
    parameter int MASTER         = 0,
    parameter int FP_SIGNIFICAND = 24,
    parameter int FP_SUBNORMAL   = 1,
    parameter int EB_SIGNIFICAND = 24,
    parameter int EB_SUBNORMAL   = 1,
    parameter int PG_SIGNIFICAND = 24,
    parameter int PG_SUBNORMAL   = 1,
    // DOT: products are added in blocks, by units in the place of tiles: in FP and EB of DOT channels (`block_engine`), in PG
    // of PG_DOT pixels (`dot_sums`). Exponents of products of the least numbers are the engines' STEPS.
    parameter int DOT            = 0,
    parameter int DEPTH_OF_SUMS  = 0,
    parameter int FP_STEPS       = 0,
    parameter int EB_STEPS       = 0,
    parameter int PG_STEPS       = 0,
    parameter int PG_DOT         = 0,
    parameter int PG_SEGMENTS    = 1,
    parameter int FIRST          = 0,  // of the layer's input channels
    // Of weights that are rounded by chance: the place of the first one in the layer, and the weights of an output channel
    // there; the layer's stream of random words; the run's seed.
    parameter int          WEIGHT_FIRST  = 0,
    parameter int          WEIGHT_ROW    = 1,
    parameter logic [31:0] WEIGHT_STREAM = 32'd0,
    parameter logic [63:0] SEED          = 64'd0,
    // Channels of the streams.
    parameter int PASSED         = ICP == 0 ? INPUTS : ARRIVING > INPUTS ? ARRIVING - INPUTS : 1,
    parameter int Y              = BEFORE + OUTPUTS,
    parameter int PARTIAL        = ICP != 0 ? OUTPUTS : BEFORE > 0 ? BEFORE : 1
) (
    input  logic                               clk,
    input  logic                               reset,
    input  logic [31:0]                        batch,
    input  logic [31:0]                        limit,
    input  logic                               x_valid,
    input  logic [COLUMNS_IN*ARRIVING*32-1:0]  x_row,
    output logic [COLUMNS_IN*PASSED*32-1:0]    passed_row,  // with x_valid
    input  logic                               before_valid,
    input  logic [COLUMNS*PARTIAL*32-1:0]      before_row,
    output logic                               y_valid,
    output logic [COLUMNS*Y*32-1:0]            y_row,
    input  logic                               dy_valid,
    input  logic [COLUMNS*Y*32-1:0]            dy_row,
    output logic [COLUMNS*PARTIAL*32-1:0]      dy_passed_row,  // with dy_valid
    input  logic                               beyond_valid,
    input  logic [COLUMNS_IN*PASSED*32-1:0]    beyond_row,
    output logic                               dx_valid,
    output logic [COLUMNS_IN*ARRIVING*32-1:0]  dx_row,
    input  logic [31:0]                        others,       // samples of which the bias has the gradient
    output logic                               update_start,
    input  logic [31:0]                        share,
    input  logic [31:0]                        rate,
    input  logic [31:0]                        momentum,
    input  logic [31:0]                        decay,
    output logic                               updated,
    input  logic                               host_write,
    input  logic [31:0]                        host_address,
    input  logic [31:0]                        host_data,
    output logic [31:0]                        host_read,
    output logic [31:0]                        host_master,
    output logic                               fp_done,      // a row is done
    output logic                               eb_done,
    output logic                               pg_done,
    output logic                               overrun
);

    // The layer as its engines see it.
    localparam int S          = FLAT != 0 ? INPUTS * ROWS_IN * COLUMNS_IN : INPUTS;
    localparam int E_ROWS     = FLAT != 0 ? 1 : ROWS_IN;
    localparam int E_COLUMNS  = FLAT != 0 ? 1 : COLUMNS_IN;
    localparam int TAPS       = KERNEL_ROWS * KERNEL_COLUMNS;
    localparam int FP_READS   = DOT > 0 ? 2 * DOT * FP_TILES : FP_TILES;
    localparam int EB_READS   = DOT > 0 ? 2 * DOT * EB_TILES : EB_TILES;
    localparam int READ_SIZE  = DOT > 0 ? 1 : TAPS;
    localparam int WEIGHTS    = S * OUTPUTS * TAPS;
    localparam int ENTRY_BITS = WEIGHTS > 1 ? $clog2(WEIGHTS) : 1;
    localparam int WORD_BITS  = $clog2(WEIGHTS + LANES);
    localparam int X_PIXELS   = FLAT != 0 ? ROWS_IN * COLUMNS_IN : COLUMNS_IN;
    localparam int X_CODE     = int'(ACTIVATIONS.bits) + (ACTIVATIONS.block != 17'd0 ? 8 : 0);
    localparam int X_SIZE     = ACTIVATIONS.block != 17'd0 ? int'(ACTIVATIONS.block) : 1;
    localparam int X_BLOCKS   = ACTIVATIONS.block != 17'd0 ? (FIRST % X_SIZE + INPUTS + X_SIZE - 1) / X_SIZE : 0;
    localparam int X_WIDTH    = X_PIXELS * (INPUTS * int'(ACTIVATIONS.bits) + X_BLOCKS * 8);
    localparam int DY_CODE    = int'(ERRORS.bits) + (ERRORS.block != 17'd0 ? 8 : 0);
    localparam int DY_SIZE    = ERRORS.block != 17'd0 ? int'(ERRORS.block) : 1;
    localparam int DY_BLOCKS  = ERRORS.block != 17'd0 ? (BEFORE % DY_SIZE + OUTPUTS + DY_SIZE - 1) / DY_SIZE : 0;
    localparam int DY_WIDTH   = COLUMNS * (OUTPUTS * int'(ERRORS.bits) + DY_BLOCKS * 8);
    localparam int X_BITS     = E_ROWS * SLOTS > 1 ? $clog2(E_ROWS * SLOTS) : 1;
    localparam int DY_BITS    = ROWS * SLOTS > 1 ? $clog2(ROWS * SLOTS) : 1;

    // ---- Act-RAM and line buffers; what passes on path 1.

    logic [COLUMNS_IN*INPUTS*32-1:0] own_x;
    logic held_valid;
    logic [E_COLUMNS*S*32-1:0] held_row;
    logic [X_WIDTH-1:0] held_codes;
    logic [31:0] x_arrived;
    logic fp_load, pg_load;
    logic [KERNEL_ROWS*X_BITS-1:0] fp_address, pg_address;
    logic [KERNEL_ROWS-1:0] fp_in_map, pg_in_map;
    logic [KERNEL_ROWS*X_WIDTH-1:0] fp_packed, pg_packed;
    logic [KERNEL_ROWS*E_COLUMNS*S*X_CODE-1:0] fp_rows, pg_rows;

    channels #(.COLUMNS(COLUMNS_IN), .CHANNELS(ARRIVING), .FIRST(0), .COUNT(INPUTS)) own (.row(x_row), .some(own_x));

    if (FLAT != 0) begin : g_flat
        flatten #(.ROWS(ROWS_IN), .COLUMNS(COLUMNS_IN), .CHANNELS(INPUTS)) map (
            .clk, .reset, .in_valid(x_valid), .in_row(own_x), .out_valid(held_valid), .out_row(held_row)
        );
    end else begin : g_map
        assign held_valid = x_valid;
        assign held_row = own_x;
    end

    pack_row #(
        .FORMAT(ACTIVATIONS), .PIXELS(X_PIXELS), .CHANNELS(INPUTS), .FIRST(FIRST), .FLAT(FLAT)
    ) held (
        .row(held_row), .packed_row(held_codes)
    );
    row_ram #(
        .WIDTH(X_WIDTH), .ROWS(E_ROWS), .SLOTS(SLOTS), .A_TAPS(KERNEL_ROWS), .B_TAPS(KERNEL_ROWS)
    ) act_ram (
        .clk, .reset, .in_valid(held_valid), .in_row(held_codes), .arrived(x_arrived), .a_load(fp_load),
        .a_address(fp_address), .a_in_map(fp_in_map), .a_rows(fp_packed), .b_load(pg_load), .b_address(pg_address),
        .b_in_map(pg_in_map), .b_rows(pg_packed)
    );
    for (genvar tap = 0; tap < KERNEL_ROWS; tap++) begin : g_line_buffers
        with_scales #(
            .FORMAT(ACTIVATIONS), .PIXELS(X_PIXELS), .CHANNELS(INPUTS), .FIRST(FIRST), .FLAT(FLAT)
        ) of_fp (
            .packed_row(fp_packed[tap*X_WIDTH+:X_WIDTH]), .codes(fp_rows[tap*E_COLUMNS*S*X_CODE+:E_COLUMNS*S*X_CODE])
        );
        with_scales #(
            .FORMAT(ACTIVATIONS), .PIXELS(X_PIXELS), .CHANNELS(INPUTS), .FIRST(FIRST), .FLAT(FLAT)
        ) of_pg (
            .packed_row(pg_packed[tap*X_WIDTH+:X_WIDTH]), .codes(pg_rows[tap*E_COLUMNS*S*X_CODE+:E_COLUMNS*S*X_CODE])
        );
    end

    if (ICP != 0 && ARRIVING > INPUTS) begin : g_rest_passes
        channels #(
            .COLUMNS(COLUMNS_IN), .CHANNELS(ARRIVING), .FIRST(INPUTS), .COUNT(ARRIVING - INPUTS)
        ) rest (.row(x_row), .some(passed_row));
    end else if (ICP == 0) begin : g_all_pass
        assign passed_row = x_row;
    end else begin : g_nothing_passes
        assign passed_row = '0;
    end

    // ---- LPRAM.

    logic [FP_READS*ENTRY_BITS-1:0] fp_entry;
    logic [EB_READS*ENTRY_BITS-1:0] eb_entry;
    logic [FP_READS*READ_SIZE*32-1:0] fp_weights;
    logic [EB_READS*READ_SIZE*32-1:0] eb_weights;
    logic [WORD_BITS-1:0] read_address, write_address;
    logic [LANES*32-1:0] weight, gradient, written;
    logic write, update_done;

    lpram #(
        .WORDS(WEIGHTS), .TAPS(READ_SIZE), .FP_TILES(FP_READS), .EB_TILES(EB_READS), .LANES(LANES),
        .FORMAT(WEIGHT), .MASTER(MASTER), .CODED(DOT > 0 ? 1 : 0), .OUTPUTS(OUTPUTS), .ACROSS(ICP), .FIRST(WEIGHT_FIRST), .ROW(WEIGHT_ROW),
        .STREAM(WEIGHT_STREAM), .SEED(SEED)
    ) parameters (
        .clk, .reset, .fp_entry, .fp_weights, .eb_entry, .eb_weights, .read_address, .read(weight), .write, .write_address,
        .written, .done(update_done), .settled(updated), .host_write, .host_address, .host_data, .host_read,
        .host_master
    );

    // ---- FP, and path 2.

    logic fp_valid, partial_there, y_overrun;
    logic [COLUMNS*OUTPUTS*32-1:0] fp_row, partial_row;

    fp_engine #(
        .INPUTS(S), .OUTPUTS(OUTPUTS), .ROWS_IN(E_ROWS), .COLUMNS_IN(E_COLUMNS), .ROWS(ROWS), .COLUMNS(COLUMNS),
        .KERNEL_ROWS(KERNEL_ROWS), .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE_ROWS(STRIDE_ROWS),
        .STRIDE_COLUMNS(STRIDE_COLUMNS), .PAD_ROWS(PAD_ROWS), .PAD_COLUMNS(PAD_COLUMNS), .TILES(FP_TILES),
        .EVERY(FP_EVERY), .LATENCY(LATENCY), .SLOTS(SLOTS), .TAKES_PARTIAL(ICP != 0 && IS_FIRST == 0 ? 1 : 0),
        .FORMAT(ACTIVATIONS), .SIGNIFICAND(FP_SIGNIFICAND), .SUBNORMAL(FP_SUBNORMAL), .DOT(DOT), .DEPTH(DEPTH_OF_SUMS),
        .STEPS(FP_STEPS), .MAP_ROWS(FLAT != 0 ? ROWS_IN : 1), .MAP_COLUMNS(FLAT != 0 ? COLUMNS_IN : 1), .WEIGHT(WEIGHT)
    ) fp (
        .clk, .reset, .limit, .arrived(x_arrived), .load(fp_load), .address(fp_address), .in_map(fp_in_map),
        .rows(fp_rows), .entry(fp_entry), .weights(fp_weights), .partial_valid(partial_there), .partial(partial_row),
        .out_valid(fp_valid), .out_row(fp_row)
    );
    assign fp_done = fp_valid;

    if (IS_FIRST != 0) begin : g_begins
        wire unused = &{before_valid, before_row};
        assign partial_there = 1'b0;
        assign partial_row = '0;
        assign y_valid = fp_valid;
        assign y_row = fp_row;
        assign y_overrun = 1'b0;
    end else if (ICP != 0) begin : g_continues
        row_fifo #(.WIDTH(COLUMNS * OUTPUTS * 32), .DEPTH(DEPTH)) pab (
            .clk, .reset, .in_valid(before_valid), .in_row(before_row), .valid(partial_there), .row(partial_row),
            .take(fp_load), .overrun(y_overrun)
        );
        assign y_valid = fp_valid;
        assign y_row = fp_row;
    end else begin : g_appends
        row_join #(.COLUMNS(COLUMNS), .LEFT(BEFORE), .RIGHT(OUTPUTS), .DEPTH(DEPTH)) pab (
            .clk, .reset, .left_valid(before_valid), .left_row(before_row), .right_valid(fp_valid), .right_row(fp_row),
            .out_valid(y_valid), .out_row(y_row), .overrun(y_overrun)
        );
        assign partial_there = 1'b0;
        assign partial_row = '0;
    end

    // ---- Output errors, and path 3.

    logic [COLUMNS*OUTPUTS*32-1:0] own_dy;
    logic [DY_WIDTH-1:0] own_codes;
    logic [31:0] dy_arrived;
    logic eb_load;
    logic [KERNEL_ROWS*DY_BITS-1:0] eb_address;
    logic [KERNEL_ROWS-1:0] eb_in_map;
    logic [KERNEL_ROWS*DY_WIDTH-1:0] eb_packed;
    logic [KERNEL_ROWS*COLUMNS*OUTPUTS*DY_CODE-1:0] eb_rows;
    logic [DY_BITS-1:0] error_address;
    logic [DY_WIDTH-1:0] pg_packed_errors;
    logic [COLUMNS*OUTPUTS*DY_CODE-1:0] pg_errors;

    channels #(.COLUMNS(COLUMNS), .CHANNELS(Y), .FIRST(BEFORE), .COUNT(OUTPUTS)) own_errors (
        .row(dy_row), .some(own_dy)
    );
    pack_row #(.FORMAT(ERRORS), .PIXELS(COLUMNS), .CHANNELS(OUTPUTS), .FIRST(BEFORE)) own_packed (
        .row(own_dy), .packed_row(own_codes)
    );
    row_ram #(
        .WIDTH(DY_WIDTH), .ROWS(ROWS), .SLOTS(SLOTS), .A_TAPS(KERNEL_ROWS), .B_TAPS(1)
    ) error_ram (
        .clk, .reset, .in_valid(dy_valid), .in_row(own_codes), .arrived(dy_arrived), .a_load(eb_load),
        .a_address(eb_address), .a_in_map(eb_in_map), .a_rows(eb_packed), .b_load(pg_load), .b_address(error_address),
        .b_in_map(1'b1), .b_rows(pg_packed_errors)
    );
    for (genvar tap = 0; tap < KERNEL_ROWS; tap++) begin : g_error_buffers
        with_scales #(.FORMAT(ERRORS), .PIXELS(COLUMNS), .CHANNELS(OUTPUTS), .FIRST(BEFORE)) of_eb (
            .packed_row(eb_packed[tap*DY_WIDTH+:DY_WIDTH]),
            .codes(eb_rows[tap*COLUMNS*OUTPUTS*DY_CODE+:COLUMNS*OUTPUTS*DY_CODE])
        );
    end
    with_scales #(.FORMAT(ERRORS), .PIXELS(COLUMNS), .CHANNELS(OUTPUTS), .FIRST(BEFORE)) errors_of_pg (
        .packed_row(pg_packed_errors), .codes(pg_errors)
    );

    if (ICP != 0) begin : g_all_errors_pass
        assign dy_passed_row = dy_row;
    end else if (BEFORE > 0) begin : g_first_errors_pass
        channels #(.COLUMNS(COLUMNS), .CHANNELS(Y), .FIRST(0), .COUNT(BEFORE)) first (
            .row(dy_row), .some(dy_passed_row)
        );
    end else begin : g_no_errors_pass
        assign dy_passed_row = '0;
    end

    // ---- EB, and path 4.

    logic [31:0] eb_samples;
    logic dx_overrun;

    if (HAS_EB != 0) begin : g_eb
        localparam int TAKES_PARTIAL = ICP == 0 && IS_LAST == 0 ? 1 : 0;

        logic eb_valid, map_valid, flat_overrun, join_overrun, sums_there;
        logic [E_COLUMNS*S*32-1:0] eb_row, sums;
        logic [COLUMNS_IN*INPUTS*32-1:0] map_row;

        eb_engine #(
            .INPUTS(S), .OUTPUTS(OUTPUTS), .ROWS_IN(E_ROWS), .COLUMNS_IN(E_COLUMNS), .ROWS(ROWS), .COLUMNS(COLUMNS),
            .KERNEL_ROWS(KERNEL_ROWS), .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE_ROWS(STRIDE_ROWS),
            .STRIDE_COLUMNS(STRIDE_COLUMNS), .PAD_ROWS(PAD_ROWS), .PAD_COLUMNS(PAD_COLUMNS), .TILES(EB_TILES),
            .EVERY(EB_EVERY), .LATENCY(LATENCY), .SLOTS(SLOTS), .TAKES_PARTIAL(TAKES_PARTIAL),
            .FORMAT(ERRORS), .SIGNIFICAND(EB_SIGNIFICAND), .SUBNORMAL(EB_SUBNORMAL), .DOT(DOT), .DEPTH(DEPTH_OF_SUMS),
            .STEPS(EB_STEPS), .WEIGHT(WEIGHT)
        ) eb (
            .clk, .reset, .limit, .arrived(dy_arrived), .load(eb_load), .address(eb_address), .in_map(eb_in_map),
            .rows(eb_rows), .entry(eb_entry), .weights(eb_weights), .partial_valid(sums_there), .partial(sums),
            .out_valid(eb_valid), .out_row(eb_row)
        );
        sample_counter #(.ROWS(E_ROWS)) counter (.clk, .reset, .row_done(eb_valid), .samples(eb_samples));
        assign eb_done = eb_valid;

        if (FLAT != 0) begin : g_unflat
            unflatten #(.ROWS(ROWS_IN), .COLUMNS(COLUMNS_IN), .CHANNELS(INPUTS), .DEPTH(DEPTH)) map (
                .clk, .reset, .in_valid(eb_valid), .in_row(eb_row), .out_valid(map_valid), .out_row(map_row),
                .overrun(flat_overrun)
            );
        end else begin : g_same
            assign map_valid = eb_valid;
            assign map_row = eb_row;
            assign flat_overrun = 1'b0;
        end

        if (TAKES_PARTIAL != 0) begin : g_eb_continues
            logic from_valid;
            logic [E_COLUMNS*S*32-1:0] from_row;

            if (FLAT != 0) begin : g_flat_sums
                flatten #(.ROWS(ROWS_IN), .COLUMNS(COLUMNS_IN), .CHANNELS(INPUTS)) map (
                    .clk, .reset, .in_valid(beyond_valid), .in_row(beyond_row), .out_valid(from_valid),
                    .out_row(from_row)
                );
            end else begin : g_sums
                assign from_valid = beyond_valid;
                assign from_row = beyond_row;
            end
            row_fifo #(.WIDTH(E_COLUMNS * S * 32), .DEPTH(DEPTH)) error_buffer (
                .clk, .reset, .in_valid(from_valid), .in_row(from_row), .valid(sums_there), .row(sums), .take(eb_load),
                .overrun(join_overrun)
            );
            assign dx_valid = map_valid;
            assign dx_row = map_row;
        end else begin : g_starts
            assign sums_there = 1'b0;
            assign sums = '0;
            if (ICP != 0 && IS_LAST == 0) begin : g_joined
                row_join #(.COLUMNS(COLUMNS_IN), .LEFT(INPUTS), .RIGHT(PASSED), .DEPTH(DEPTH)) error_buffer (
                    .clk, .reset, .left_valid(map_valid), .left_row(map_row), .right_valid(beyond_valid),
                    .right_row(beyond_row), .out_valid(dx_valid), .out_row(dx_row), .overrun(join_overrun)
                );
            end else begin : g_alone
                wire unused = &{beyond_valid, beyond_row};
                assign dx_valid = map_valid;
                assign dx_row = map_row;
                assign join_overrun = 1'b0;
            end
        end
        assign dx_overrun = flat_overrun || join_overrun;
    end else begin : g_no_eb
        wire unused = &{beyond_valid, beyond_row, eb_weights, eb_rows};
        assign eb_load = 1'b0;
        assign eb_address = '0;
        assign eb_in_map = '0;
        assign eb_entry = '0;
        assign eb_samples = limit;
        assign eb_done = 1'b0;
        assign dx_valid = 1'b0;
        assign dx_row = '0;
        assign dx_overrun = 1'b0;
    end

    // ---- PG, and the update: after PG's last row of the mini-batch, when EB reads the weights no more.

    logic [31:0] pg_samples, updated_to;

    pg_engine #(
        .INPUTS(S), .OUTPUTS(OUTPUTS), .ROWS_IN(E_ROWS), .COLUMNS_IN(E_COLUMNS), .ROWS(ROWS), .COLUMNS(COLUMNS),
        .KERNEL_ROWS(KERNEL_ROWS), .KERNEL_COLUMNS(KERNEL_COLUMNS), .STRIDE_ROWS(STRIDE_ROWS),
        .STRIDE_COLUMNS(STRIDE_COLUMNS), .PAD_ROWS(PAD_ROWS), .PAD_COLUMNS(PAD_COLUMNS), .TILES(PG_TILES),
        .EVERY(PG_EVERY), .LATENCY(LATENCY), .SLOTS(SLOTS), .READS(LANES),
        .FORMAT(ACTIVATIONS), .ERRORS(ERRORS), .SIGNIFICAND(PG_SIGNIFICAND), .SUBNORMAL(PG_SUBNORMAL), .DOT(PG_DOT),
        .SEGMENTS(PG_SEGMENTS), .DEPTH(DEPTH_OF_SUMS), .STEPS(PG_STEPS)
    ) pg (
        .clk, .reset, .batch, .limit, .arrived(dy_arrived), .load(pg_load), .address(pg_address), .in_map(pg_in_map),
        .rows(pg_rows), .error_address, .errors(pg_errors), .done(pg_done), .read_address, .read(gradient)
    );
    sample_counter #(.ROWS(ROWS)) pg_counter (.clk, .reset, .row_done(pg_done), .samples(pg_samples));
    assign update_start = pg_samples == limit && eb_samples == limit && others == limit && updated_to != limit;

    always_ff @(posedge clk)
        if (reset) updated_to <= '0;
        else if (update_start) updated_to <= limit;

    update #(.WORDS(WEIGHTS), .LANES(LANES), .LATENCY(LATENCY)) step (
        .clk, .reset, .start(update_start), .share, .rate, .momentum, .decay, .read_address, .weight, .gradient,
        .write, .write_address, .updated(written), .done(update_done)
    );

    // ---- Rows that came although their memory was full.

    logic [31:0] freed;

    assign freed = pg_samples < eb_samples ? pg_samples : eb_samples;
    assign overrun = y_overrun || dx_overrun || x_arrived - pg_samples * E_ROWS > SLOTS * E_ROWS
        || dy_arrived - freed * ROWS > SLOTS * ROWS;

endmodule
