// `STAGES` registers in a row; none at all is a wire.
module registers #(
    parameter int WIDTH  = 1,
    parameter int STAGES = 1
) (
    input  logic             clk,
    input  logic [WIDTH-1:0] d,
    output logic [WIDTH-1:0] q
);

    if (STAGES == 0) begin : g_wire
        wire unused = clk;
        assign q = d;
    end else begin : g_stages
        logic [STAGES*WIDTH-1:0] held;  // the newest lowest

        if (STAGES == 1) begin : g_one
            always_ff @(posedge clk) held <= d;
        end else begin : g_more
            always_ff @(posedge clk) held <= {held[(STAGES-1)*WIDTH-1:0], d};
        end
        assign q = held[STAGES*WIDTH-1-:WIDTH];
    end

endmodule
