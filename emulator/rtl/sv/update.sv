// The update of a mini-batch: gradients are averaged and forwarded to LPRAM (FPDeep, section 5.2.2). LANES parameters
// enter in a cycle. As the kernels do, each operation rounds by itself:
//
//     g = gradient * share + decay * w;  v = momentum * v + g;  w = w - rate * v
module update #(
    parameter int WORDS     = 1,
    parameter int LANES     = 1,
    parameter int LATENCY   = 0,
    parameter int WORD_BITS = $clog2(WORDS + LANES)
) (
    input  logic                 clk,
    input  logic                 reset,
    input  logic                 start,
    input  logic [31:0]          share,     // of a sample: one over their number
    input  logic [31:0]          rate,
    input  logic [31:0]          momentum,
    input  logic [31:0]          decay,
    output logic [WORD_BITS-1:0] read_address,
    input  logic [LANES*32-1:0]  weight,
    input  logic [LANES*32-1:0]  gradient,
    output logic                 write,
    output logic [WORD_BITS-1:0] write_address,
    output logic [LANES*32-1:0]  updated,
    output logic                 done
);

    localparam logic [31:0] ONE = 32'h3f80_0000, MINUS_ONE = 32'hbf80_0000, MINUS_ZERO = 32'h8000_0000;
    localparam int GROUPS = (WORDS + LANES - 1) / LANES;
    localparam int GROUP_BITS = GROUPS > 1 ? $clog2(GROUPS) : 1;

    logic [LANES*32-1:0] velocity[GROUPS];
    logic running, kept;  // velocities are kept from an update before
    logic last, read_valid;
    logic [GROUP_BITS-1:0] group, read_group, write_group;
    logic [WORD_BITS-1:0] operand_address;
    logic [LANES*32-1:0] weight_operand, gradient_operand, velocity_operand, new_velocity;
    logic last_operand, last_written;

    assign last = running && group == GROUP_BITS'(GROUPS - 1);

    always_ff @(posedge clk) begin
        if (reset) begin
            running <= 1'b0;
            kept <= 1'b0;
            done <= 1'b0;
        end else begin
            if (start) running <= 1'b1;
            else if (last) running <= 1'b0;
            if (write && last_written) kept <= 1'b1;
            done <= write && last_written;
        end
        if (start) begin
            group <= '0;
            read_address <= '0;
        end else if (running) begin
            group <= group + 1'b1;
            read_address <= read_address + WORD_BITS'(LANES);
        end
        weight_operand <= weight;
        gradient_operand <= gradient;
        velocity_operand <= kept ? velocity[group] : '0;
        read_group <= group;
        operand_address <= read_address;
        read_valid <= running && !reset;
        last_operand <= last;
        if (write) velocity[write_group] <= new_velocity;
    end

    registers #(.WIDTH(GROUP_BITS + WORD_BITS + 2), .STAGES(5 * LATENCY)) alongside (
        .clk, .d({read_group, operand_address, last_operand, read_valid}),
        .q({write_group, write_address, last_written, write})
    );

    for (genvar lane = 0; lane < LANES; lane++) begin : g_lanes
        logic [31:0] w, v, mean, decayed, g, kept_v, v_new, moved, w_late, v_late;

        assign w = weight_operand[lane*32+:32];
        assign v = velocity_operand[lane*32+:32];
        fp32_fma #(.LATENCY(LATENCY)) average (
            .clk, .a(gradient_operand[lane*32+:32]), .b(share), .c(MINUS_ZERO), .y(mean)
        );
        fp32_fma #(.LATENCY(LATENCY)) decays (.clk, .a(decay), .b(w), .c(MINUS_ZERO), .y(decayed));
        fp32_fma #(.LATENCY(LATENCY)) gradient_of (.clk, .a(mean), .b(ONE), .c(decayed), .y(g));
        registers #(.WIDTH(32), .STAGES(LATENCY)) v_waits (.clk, .d(v), .q(v_late));
        fp32_fma #(.LATENCY(LATENCY)) keeps (.clk, .a(momentum), .b(v_late), .c(MINUS_ZERO), .y(kept_v));
        fp32_fma #(.LATENCY(LATENCY)) velocity_of (.clk, .a(kept_v), .b(ONE), .c(g), .y(v_new));
        fp32_fma #(.LATENCY(LATENCY)) step_of (.clk, .a(rate), .b(v_new), .c(MINUS_ZERO), .y(moved));
        registers #(.WIDTH(32), .STAGES(4 * LATENCY)) w_waits (.clk, .d(w), .q(w_late));
        fp32_fma #(.LATENCY(LATENCY)) step_down (
            .clk, .a(moved), .b(MINUS_ONE), .c(w_late), .y(updated[lane*32+:32])
        );
        registers #(.WIDTH(32), .STAGES(2 * LATENCY)) new_v_waits (
            .clk, .d(v_new), .q(new_velocity[lane*32+:32])
        );
    end

endmodule
