// The bias of a layer, in the SFU of its last slice (FPDeep, section 5.3): added to complete rows, ADD_LANES values a
// cycle; its gradient, the sum of the output errors by sample, row and column; and its update.
module bias #(
    parameter int CHANNELS  = 1,
    parameter int ROWS      = 1,
    parameter int COLUMNS   = 1,
    parameter int ADD_LANES = 1,
    parameter int SUM_LANES = 1,
    parameter int SUM_EVERY = 1,
    parameter int LANES     = 1,  // of the update
    parameter int LATENCY   = 0,
    parameter int DEPTH     = 2
) (
    input  logic                           clk,
    input  logic                           reset,
    input  logic [31:0]                    batch,
    input  logic [31:0]                    limit,
    input  logic                           in_valid,
    input  logic [COLUMNS*CHANNELS*32-1:0] in_row,
    output logic                           out_valid,
    output logic [COLUMNS*CHANNELS*32-1:0] out_row,
    input  logic                           error_valid,
    input  logic [COLUMNS*CHANNELS*32-1:0] error_row,
    output logic [31:0]                    samples,      // that the gradient has
    input  logic                           update_start,
    input  logic [31:0]                    share,
    input  logic [31:0]                    rate,
    input  logic [31:0]                    momentum,
    input  logic [31:0]                    decay,
    output logic                           updated,
    input  logic                           host_write,
    input  logic [31:0]                    host_address,
    input  logic [31:0]                    host_data,
    output logic [31:0]                    host_read,
    output logic                           overrun
);

    localparam int VALUES       = COLUMNS * CHANNELS;
    localparam int ADD_GROUPS   = (VALUES + ADD_LANES - 1) / ADD_LANES;
    localparam int ADD_BITS     = $clog2(VALUES + ADD_LANES);
    localparam int AT_BITS      = VALUES > 1 ? $clog2(VALUES) : 1;
    localparam int PART_BITS    = $clog2(VALUES * 32);
    localparam int CHANNEL_BITS = CHANNELS > 1 ? $clog2(CHANNELS) : 1;
    localparam int WORD_BITS    = $clog2(CHANNELS + LANES);

    logic add_overrun, sum_overrun;

    assign overrun = add_overrun || sum_overrun;

    // ---- Addition: a + b is the fused a * 1 + b.

    logic there, add_last, add_done;
    logic [VALUES*32-1:0] row;
    logic [ADD_BITS-1:0] at;
    logic [ADD_LANES*CHANNEL_BITS-1:0] bias_entry;
    logic [ADD_LANES*32-1:0] bias_words;

    row_fifo #(.WIDTH(VALUES * 32), .DEPTH(DEPTH)) waiting (
        .clk, .reset, .in_valid, .in_row, .valid(there), .row, .take(add_last), .overrun(add_overrun)
    );
    assign add_last = there && at == ADD_BITS'((ADD_GROUPS - 1) * ADD_LANES);
    registers #(.WIDTH(1), .STAGES(LATENCY + 1)) row_done (.clk, .d(add_last && !reset), .q(add_done));
    assign out_valid = add_done;

    always_ff @(posedge clk)
        if (reset || add_last) at <= '0;
        else if (there) at <= at + ADD_BITS'(ADD_LANES);

    logic [ADD_LANES*32-1:0] sums;
    logic [ADD_LANES*AT_BITS-1:0] sums_at;
    logic [ADD_LANES-1:0] sums_valid;

    wire unused_at = &sums_at;  // of a single value

    for (genvar lane = 0; lane < ADD_LANES; lane++) begin : g_add
        logic [AT_BITS-1:0] value_at;
        logic active;

        assign active = there && int'(at) + lane < VALUES;
        assign value_at = active ? AT_BITS'(int'(at) + lane) : '0;
        assign bias_entry[lane*CHANNEL_BITS+:CHANNEL_BITS] = CHANNEL_BITS'(int'(value_at) % CHANNELS);
        fp32_fma #(.LATENCY(LATENCY)) add (
            .clk, .a(row[PART_BITS'({value_at, 5'd0})+:32]), .b(32'h3f80_0000), .c(bias_words[lane*32+:32]), .y(sums[lane*32+:32])
        );
        registers #(.WIDTH(AT_BITS + 1), .STAGES(LATENCY)) alongside (
            .clk, .d({value_at, active}), .q({sums_at[lane*AT_BITS+:AT_BITS], sums_valid[lane]})
        );
    end

    always_ff @(posedge clk)
        for (int lane = 0; lane < ADD_LANES; lane++)
            if (sums_valid[lane]) out_row[PART_BITS'({sums_at[lane*AT_BITS+:AT_BITS], 5'd0})+:32] <= sums[lane*32+:32];

    // ---- The gradient: a PG with one input, which is 1.

    logic error_there, sum_load, sum_start, sum_issue, sum_last, sum_done, first_row;
    logic [31:0] sum_sample;
    logic [(ROWS > 1 ? $clog2(ROWS) : 1)-1:0] sum_row;
    logic [VALUES*32-1:0] error_waiting, errors;
    logic [WORD_BITS-1:0] read_address;
    logic [LANES*32-1:0] weight, gradient;

    row_fifo #(.WIDTH(VALUES * 32), .DEPTH(DEPTH)) errors_waiting (
        .clk, .reset, .in_valid(error_valid), .in_row(error_row), .valid(error_there), .row(error_waiting),
        .take(sum_load), .overrun(sum_overrun)
    );
    row_control #(
        .ROWS(ROWS), .GROUPS((VALUES + SUM_LANES - 1) / SUM_LANES), .EVERY(SUM_EVERY)
    ) control (
        .clk, .reset, .ready(error_there && sum_sample < limit), .sample(sum_sample), .row(sum_row), .start(sum_start),
        .issue(sum_issue), .last(sum_last)
    );
    assign sum_load = sum_start;

    always_ff @(posedge clk)
        if (sum_start) begin
            errors <= error_waiting;
            first_row <= sum_sample == limit - batch && sum_row == '0;
        end

    gradient_sums #(
        .OUTPUTS(CHANNELS), .COLUMNS_IN(COLUMNS), .COLUMNS(COLUMNS), .TILES(SUM_LANES), .LATENCY(LATENCY), .READS(LANES)
    ) gradients (
        .clk, .reset, .start(sum_start), .issue(sum_issue), .last(sum_last), .first_row,
        .rows({COLUMNS{32'h3f80_0000}}), .errors, .done(sum_done), .read_address, .read(gradient)
    );
    sample_counter #(.ROWS(ROWS)) summed (.clk, .reset, .row_done(sum_done), .samples);

    // ---- The update.

    logic write, update_done;
    logic [WORD_BITS-1:0] write_address;
    logic [LANES*32-1:0] written;
    logic [CHANNEL_BITS-1:0] no_entry;
    logic [31:0] no_weight, no_master;

    assign no_entry = '0;
    lpram #(
        .WORDS(CHANNELS), .FP_TILES(ADD_LANES), .EB_TILES(1), .LANES(LANES)
    ) biases (
        .clk, .reset, .fp_entry(bias_entry), .fp_weights(bias_words), .eb_entry(no_entry), .eb_weights(no_weight),
        .read_address, .read(weight), .write, .write_address, .written, .done(update_done), .settled(updated),
        .host_write, .host_address, .host_data, .host_read, .host_master(no_master)
    );
    wire unused = &{no_weight, no_master};
    update #(.WORDS(CHANNELS), .LANES(LANES), .LATENCY(LATENCY)) step (
        .clk, .reset, .start(update_start), .share, .rate, .momentum, .decay, .read_address, .weight, .gradient,
        .write, .write_address, .updated(written), .done(update_done)
    );

endmodule
