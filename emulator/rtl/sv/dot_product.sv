// Two exact dot products that share their operands x, one with w[0] and one with w[1], of LANES whole numbers each: the
// multipliers of `accumulate = "dot:LANES"` (docs/numbers.md).
//
// Both products of a lane are one multiplication (Xilinx WP486): w[1] stands FIELD places above w[0] in the wide operand
// of a DSP, so the upper product stands above the lower, too. No number is -2^(WIDTH-1), so a product has 2 * WIDTH - 1
// bits, and CHAIN of them add up in a field without running over, in the DSPs' own adders. A negative sum below has
// borrowed one from the sum above, which is given back once for each chain; then adder trees add the chains.
//
//     PORT 27 (DSP48E2)   [ w1 8 ][      0      ][ w0 8 ]   FIELD 19: chains of 16        25 (DSP48E1)   17: of 4
//
// New numbers may come in each clock; the sums follow `LATENCY` clocks later. The first cut with registers is after the
// chains, the second before them; more are plain delays, 0 is combinational.
module dot_product #(
    parameter int LANES   = 32,
    parameter int WIDTH   = 8,   // of a number, in two's complement
    parameter int PORT    = 27,  // of a DSP, the wider one
    parameter int LATENCY = 0,
    parameter int BITS    = 2 * WIDTH - 1 + $clog2(LANES)
) (
    input  logic                   clk,
    input  logic [LANES*WIDTH-1:0] x,
    input  logic [2*LANES*WIDTH-1:0] w,
    output logic [2*BITS-1:0]      sums
);

    localparam int FIELD        = PORT - WIDTH;
    localparam int CHAIN        = 1 << (FIELD - (2 * WIDTH - 1));
    localparam int CHAINS       = (LANES + CHAIN - 1) / CHAIN;
    localparam int LEAVES       = 1 << $clog2(CHAINS);
    localparam int AFTER_CHAINS = LATENCY > 0 ? LATENCY - (LATENCY > 1 ? 1 : 0) : 0;
    localparam int BEFORE       = LATENCY > 1 ? 1 : 0;
    localparam int PAIRED       = 2 * FIELD;  // of a chain: the upper field is as wide as the lower

    logic [LANES*WIDTH-1:0] x_held;
    logic [2*LANES*WIDTH-1:0] w_held;
    logic [CHAINS*PAIRED-1:0] chains, chains_held;

    registers #(.WIDTH(3 * LANES * WIDTH), .STAGES(BEFORE)) operands (.clk, .d({x, w}), .q({x_held, w_held}));

    for (genvar lane = 0; lane < LANES; lane++) begin : g_lanes
        logic signed [WIDTH-1:0] narrow, lower, upper;
        logic signed [PORT-1:0] wide;
        logic signed [PAIRED-1:0] product, after;

        assign narrow = x_held[lane*WIDTH+:WIDTH];
        assign lower = w_held[lane*WIDTH+:WIDTH];
        assign upper = w_held[(LANES+lane)*WIDTH+:WIDTH];
        assign wide = {upper, FIELD'(0)} + PORT'(lower);
        assign product = PAIRED'(wide) * PAIRED'(narrow);
        if (lane % CHAIN == 0) begin : g_first
            assign after = product;
        end else begin : g_next
            assign after = g_lanes[lane-1].after + product;
        end
    end
    for (genvar chain = 0; chain < CHAINS; chain++) begin : g_chains
        localparam int LAST = (chain + 1) * CHAIN < LANES ? (chain + 1) * CHAIN - 1 : LANES - 1;

        assign chains[chain*PAIRED+:PAIRED] = g_lanes[LAST].after;
    end
    registers #(.WIDTH(CHAINS * PAIRED), .STAGES(AFTER_CHAINS)) after_chains (.clk, .d(chains), .q(chains_held));

    // ---- Trees: node n adds nodes 2 n and 2 n + 1; leaves are the chains, and zeros.

    for (genvar which = 0; which < 2; which++) begin : g_sums
        for (genvar node = 2 * LEAVES - 1; node > 0; node--) begin : g_nodes
            logic signed [BITS-1:0] total;

            if (node >= LEAVES + CHAINS) begin : g_nothing
                assign total = '0;
            end else if (node >= LEAVES) begin : g_leaf
                logic signed [FIELD-1:0] field;
                logic borrowed;
                wire unused = &field;  // of fields that are wider than the sum

                assign field = chains_held[(node-LEAVES)*PAIRED+which*FIELD+:FIELD];
                assign borrowed = which != 0 && chains_held[(node-LEAVES)*PAIRED+FIELD-1];
                assign total = BITS'(field) + BITS'(borrowed);
            end else begin : g_node
                assign total = g_nodes[2*node].total + g_nodes[2*node+1].total;
            end
        end
        assign sums[which*BITS+:BITS] = g_nodes[1].total;
    end

endmodule
