// How many zeros stand before the first one; 76 of a zero. Each step keeps that half of what the step before it left in
// which the first one is.
module leading_zeros_76 (
    input  logic [75:0] x,
    output logic [6:0]  zeros
);

    logic [63:0] left_64;
    logic [31:0] left_32;
    logic [15:0] left_16;
    logic [7:0] left_8;
    logic [3:0] left_4;

    assign zeros[6] = x[75:12] == 64'd0;
    assign left_64 = zeros[6] ? {x[11:0], {52{1'b1}}} : x[75:12];
    assign zeros[5] = left_64[63:32] == 32'd0;
    assign left_32 = zeros[5] ? left_64[31:0] : left_64[63:32];
    assign zeros[4] = left_32[31:16] == 16'd0;
    assign left_16 = zeros[4] ? left_32[15:0] : left_32[31:16];
    assign zeros[3] = left_16[15:8] == 8'd0;
    assign left_8 = zeros[3] ? left_16[7:0] : left_16[15:8];
    assign zeros[2] = left_8[7:4] == 4'd0;
    assign left_4 = zeros[2] ? left_8[3:0] : left_8[7:4];
    assign zeros[1] = left_4[3:2] == 2'd0;
    assign zeros[0] = zeros[1] ? !left_4[1] : !left_4[3];

    wire unused = left_4[0];  // where no other bit is a one, this one is

endmodule
