// The scale of a block of fp32 numbers, a power of two: the least under which no element is beyond LARGEST, or, by FLOOR,
// that of the largest element's exponent alone (OCP's; Microscaling Formats 1.0, section 6.3). Wires alone.
module block_scale #(
    parameter int          SIZE    = 32,
    parameter logic [31:0] LARGEST = 32'h43e0_0000,
    parameter int          FLOOR   = 0
) (
    input  logic        [SIZE*32-1:0] x,
    output logic signed [8:0]         exponent,  // of the scale, -127 to 127
    output logic                      is_nan     // the block has an infinity or NaN
);

    // ---- The largest magnitude, by a tree: its leaves, and then the larger of two that came before.

    for (genvar node = 0; node < 2 * SIZE - 1; node++) begin : g_nodes
        logic [30:0] larger;

        if (node < SIZE) begin : g_leaf
            wire unused = x[node*32+31];
            assign larger = x[node*32+:31];
        end else begin : g_larger
            logic [30:0] one, other;

            assign one = g_nodes[2*(node-SIZE)].larger;
            assign other = g_nodes[2*(node-SIZE)+1].larger;
            assign larger = one > other ? one : other;
        end
    end

    // ---- Its exponent less that of LARGEST, and one more if its significand is larger. Bits of E8M0 hold it.

    logic [30:0] most;
    logic [23:0] significand, leading;
    logic [6:0] zeros;
    logic signed [10:0] distance;

    assign most = g_nodes[2*SIZE-2].larger;
    assign is_nan = most >= 31'h7f80_0000;
    assign significand = {most[30:23] != 8'd0, most[22:0]};
    assign zeros = fp32::leading_zeros({significand, 52'd0});
    assign leading = significand << zeros;
    assign distance = 11'(most[30:23]) + 11'(most[30:23] == 8'd0) - 11'(zeros)
        - 11'(LARGEST[30:23]) + 11'(FLOOR == 0 && leading > {1'b1, LARGEST[22:0]});
    assign exponent = most == 31'd0 || distance < -11'sd127 ? -9'sd127 : distance > 11'sd127 ? 9'sd127 : distance[8:0];

endmodule
