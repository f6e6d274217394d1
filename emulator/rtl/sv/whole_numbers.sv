// Codes of whole numbers, a sign and a magnitude and above them the scale of their block, if they have one, as numbers of
// WIDTH bits in two's complement, and their scales (E8M0; without blocks that of 1). Wires alone.
module whole_numbers #(
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int               VALUES = 1,
    parameter int               WIDTH  = 8,
    parameter int               BITS   = int'(FORMAT.bits),
    parameter int               CODE   = BITS + (FORMAT.block != 17'd0 ? 8 : 0)
) (
    input  logic [VALUES*CODE-1:0]  codes,
    output logic [VALUES*WIDTH-1:0] numbers,
    output logic [VALUES*8-1:0]     scales
);

    for (genvar i = 0; i < VALUES; i++) begin : g_values
        logic [CODE-1:0] code;
        logic [WIDTH-1:0] magnitude;

        assign code = codes[i*CODE+:CODE];
        assign magnitude = WIDTH'(code[BITS-2:0]);
        assign numbers[i*WIDTH+:WIDTH] = code[BITS-1] ? -magnitude : magnitude;
        if (CODE > BITS) begin : g_scaled
            assign scales[i*8+:8] = code[CODE-1-:8];
        end else begin : g_alone
            assign scales[i*8+:8] = 8'd127;
        end
    end

endmodule
