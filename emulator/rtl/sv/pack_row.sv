// A row as it lies in memory: the codes of its values and, above them, the scales of its blocks. Blocks are of channels of
// a pixel, from the map's channel 0 on; FIRST is the map's channel that comes first here. So a block may be there in part:
// its scale is then the least that suffices for the part, under which its values are what they were. FLAT: channels are
// the outer order, pixels the inner one. Wires alone.
module pack_row #(
    parameter formats::format_t FORMAT   = formats::FP32,
    parameter int               PIXELS   = 1,
    parameter int               CHANNELS = 1,
    parameter int               FIRST    = 0,
    parameter int               FLAT     = 0,
    parameter int               BITS     = int'(FORMAT.bits),
    parameter int               SIZE     = FORMAT.block != 17'd0 ? int'(FORMAT.block) : 1,
    parameter int               BEFORE   = FIRST % SIZE,  // channels of the first block that are not here
    parameter int               BLOCKS   = FORMAT.block != 17'd0 ? (BEFORE + CHANNELS + SIZE - 1) / SIZE : 0,
    parameter int               WIDTH    = PIXELS * (CHANNELS * BITS + BLOCKS * 8)
) (
    input  logic [PIXELS*CHANNELS*32-1:0] row,
    output logic [WIDTH-1:0]              packed_row
);

    for (genvar pixel = 0; pixel < PIXELS; pixel++) begin : g_pixels
        if (BLOCKS == 0) begin : g_alone
            for (genvar channel = 0; channel < CHANNELS; channel++) begin : g_values
                localparam int AT = pixel * CHANNELS + channel;

                pack #(.FORMAT(FORMAT)) value (
                    .x(row[AT*32+:32]), .exponent('0), .code(packed_row[AT*BITS+:BITS])
                );
            end
        end
        for (genvar block = 0; block < BLOCKS; block++) begin : g_blocks
            localparam int BEGIN = block == 0 ? 0 : block * SIZE - BEFORE;
            localparam int END   = (block + 1) * SIZE - BEFORE < CHANNELS ? (block + 1) * SIZE - BEFORE : CHANNELS;
            localparam int COUNT = END - BEGIN;

            logic [COUNT*32-1:0] values;
            logic signed [8:0] exponent;
            logic is_nan;

            block_scale #(.SIZE(COUNT), .LARGEST(FORMAT.largest)) scale (.x(values), .exponent, .is_nan);
            assign packed_row[PIXELS*CHANNELS*BITS+(pixel*BLOCKS+block)*8+:8] =
                is_nan ? 8'd255 : exponent[7:0] + 8'd127;
            for (genvar i = 0; i < COUNT; i++) begin : g_values
                localparam int AT = FLAT != 0 ? (BEGIN + i) * PIXELS + pixel : pixel * CHANNELS + BEGIN + i;

                assign values[i*32+:32] = row[AT*32+:32];
                pack #(.FORMAT(FORMAT)) value (
                    .x(row[AT*32+:32]), .exponent, .code(packed_row[AT*BITS+:BITS])
                );
            end
        end
    end

endmodule
