// Philox4x32-10, random numbers by their place (Salmon et al., SC 2011): the four words of a counter under a key, bit for
// bit as `philox` of kernels/quantise. Words of 32 bits, the first lowest.
//
// Iterative: a round in each cycle, by two multipliers of 32 by 32 bits. A counter is taken in a cycle with `start` and
// `ready`; its words are there in the cycle with `done`, 10 cycles later, in which the next counter may be taken. So a
// counter takes 10 cycles, and four values that are rounded by chance, 2.5 each.
module philox (
    input  logic         clk,
    input  logic         reset,
    input  logic         start,
    input  logic [127:0] counter,
    input  logic [63:0]  key,
    output logic         ready,
    output logic         done,
    output logic [127:0] words
);

    localparam logic [31:0] MULTIPLIER_0 = 32'hd251_1f53, MULTIPLIER_1 = 32'hcd9e_8d57;
    localparam logic [31:0] WEYL_0 = 32'h9e37_79b9, WEYL_1 = 32'hbb67_ae85;
    localparam logic [3:0] ROUNDS = 4'd10;

    logic [127:0] state, next;
    logic [63:0] round_key, held_key, one, other;
    logic [3:0] rounds;  // that are left

    assign ready = rounds == 4'd0;
    assign words = state;

    // The first round is of the counter as it comes.
    logic [127:0] from;

    assign from = ready ? counter : state;
    assign round_key = ready ? key : held_key;
    assign one = {32'd0, from[31:0]} * {32'd0, MULTIPLIER_0};
    assign other = {32'd0, from[95:64]} * {32'd0, MULTIPLIER_1};
    assign next = {one[31:0], one[63:32] ^ from[127:96] ^ round_key[63:32], other[31:0],
        other[63:32] ^ from[63:32] ^ round_key[31:0]};

    always_ff @(posedge clk) begin
        if (reset) begin
            rounds <= 4'd0;
            done <= 1'b0;
        end else begin
            if (!ready) rounds <= rounds - 4'd1;
            else if (start) rounds <= ROUNDS - 4'd1;
            done <= rounds == 4'd1;
        end
        if (start || !ready) begin
            state <= next;
            held_key <= {round_key[63:32] + WEYL_1, round_key[31:0] + WEYL_0};
        end
    end

endmodule
