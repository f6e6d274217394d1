// The values of a row from memory, each with its block's scale above its code, as `unpack` takes them; see `pack_row`.
// Wires alone.
module with_scales #(
    parameter formats::format_t FORMAT   = formats::FP32,
    parameter int               PIXELS   = 1,
    parameter int               CHANNELS = 1,
    parameter int               FIRST    = 0,
    parameter int               FLAT     = 0,
    parameter int               BITS     = int'(FORMAT.bits),
    parameter int               SIZE     = FORMAT.block != 17'd0 ? int'(FORMAT.block) : 1,
    parameter int               BEFORE   = FIRST % SIZE,
    parameter int               BLOCKS   = FORMAT.block != 17'd0 ? (BEFORE + CHANNELS + SIZE - 1) / SIZE : 0,
    parameter int               WIDTH    = PIXELS * (CHANNELS * BITS + BLOCKS * 8),
    parameter int               CODE     = BITS + (BLOCKS > 0 ? 8 : 0)
) (
    input  logic [WIDTH-1:0]                packed_row,
    output logic [PIXELS*CHANNELS*CODE-1:0] codes
);

    if (BLOCKS == 0) begin : g_alone
        assign codes = packed_row;
    end else begin : g_scaled
        for (genvar pixel = 0; pixel < PIXELS; pixel++) begin : g_pixels
            for (genvar channel = 0; channel < CHANNELS; channel++) begin : g_values
                localparam int AT    = FLAT != 0 ? channel * PIXELS + pixel : pixel * CHANNELS + channel;
                localparam int SCALE = PIXELS * CHANNELS * BITS + (pixel * BLOCKS + (BEFORE + channel) / SIZE) * 8;

                assign codes[AT*CODE+:CODE] = {packed_row[SCALE+:8], packed_row[AT*BITS+:BITS]};
            end
        end
    end

endmodule
