// The words by which a block of SIZE weights is rounded by chance (docs/numbers.md), drawn by one generator:
//
//     key      SEED
//     counter  element / 4; STREAM, of the layer and its weights; the update, low, high
//     word     element % 4
//
// A block's counters are drawn one after the other: weights side by side (STRIDE = 0) share them, those that are STRIDE
// apart have one each. All words are there in the cycle with `ready`, 10 * COUNTERS + 2 cycles after the one before, or
// after `restart`.
module weight_words #(
    parameter int          SIZE     = 1,
    parameter int          STRIDE   = 0,
    parameter logic [31:0] STREAM   = 32'd0,
    parameter logic [63:0] SEED     = 64'd0,
    parameter int          COUNTERS = STRIDE == 0 ? (SIZE + 6) / 4 : SIZE
) (
    input  logic               clk,
    input  logic               restart,
    input  logic [31:0]        element,  // the place of the block's first weight in the layer
    input  logic [63:0]        update,
    output logic               ready,
    output logic [SIZE*32-1:0] words
);

    localparam int BITS = $clog2(COUNTERS + 1);

    logic idle, done, issue;
    logic [BITS-1:0] which, drawn;
    logic [31:0] at;
    logic [127:0] four;

    assign issue = idle && which != BITS'(COUNTERS) && !restart;

    philox generator (
        .clk, .reset(restart), .start(issue), .counter({update, STREAM, at}), .key(SEED), .ready(idle), .done,
        .words(four)
    );

    always_ff @(posedge clk) begin
        if (restart || ready) which <= '0;
        else if (issue) which <= which + 1'b1;
        if (issue) drawn <= which;
        ready <= done && drawn == BITS'(COUNTERS - 1) && !restart;
    end

    if (STRIDE == 0) begin : g_together
        logic [COUNTERS*128-1:0] held;

        assign at = element / 4 + 32'(which);
        for (genvar k = 0; k < COUNTERS; k++) begin : g_counters
            always_ff @(posedge clk) if (done && drawn == BITS'(k)) held[k*128+:128] <= four;
        end
        assign words = (SIZE * 32)'(held >> {element[1:0], 5'd0});
    end else begin : g_apart
        logic [31:0] weight;  // its place from the first one on: a sum, since a product would take a DSP
        logic [1:0] place;

        assign at = (element + weight) / 4;
        always_ff @(posedge clk) begin
            if (restart || ready) weight <= '0;
            else if (issue) weight <= weight + 32'(STRIDE);
            if (issue) place <= 2'(element + weight);
        end
        for (genvar k = 0; k < SIZE; k++) begin : g_weights
            always_ff @(posedge clk) if (done && drawn == BITS'(k)) words[k*32+:32] <= four[place*32+:32];
        end
    end

endmodule
