// `dot_engine` in the place of `engine`: FP or EB of a device whose products are added in blocks of DOT, by TILES units. It
// reads the codes of rows and of LPRAM's words, and says which words of it each unit takes.
//
// A fully connected layer's row is a whole map, of MAP_ROWS and MAP_COLUMNS, channels outermost: in FP its places are those
// of a kernel that covers it.
module block_engine #(
    parameter int BACKWARD       = 0,
    parameter int OUTERS         = 1,
    parameter int CHANNELS       = 1,
    parameter int COLUMNS        = 1,
    parameter int COLUMNS_READ   = 1,
    parameter int KERNEL_ROWS    = 1,
    parameter int KERNEL_COLUMNS = 1,
    parameter int STRIDE         = 1,  // of columns
    parameter int PAD            = 0,  // of columns
    parameter int MAP_ROWS       = 1,
    parameter int MAP_COLUMNS    = 1,
    parameter int TILES          = 1,
    parameter int DOT            = 8,
    parameter int STEPS          = 0,
    parameter int DEPTH          = 0,
    parameter int LATENCY        = 0,
    parameter int WEIGHTS        = 1,  // words of LPRAM
    parameter formats::format_t FORMAT = formats::FP32,
    parameter formats::format_t WEIGHT = formats::FP32,
    parameter int CODE           = int'(FORMAT.bits) + (FORMAT.block != 17'd0 ? 8 : 0),
    parameter int READS          = 2 * DOT * TILES,
    parameter int SUMS           = COLUMNS * CHANNELS,
    parameter int ENTRY_BITS     = WEIGHTS > 1 ? $clog2(WEIGHTS) : 1
) (
    input  logic                                            clk,
    input  logic                                            reset,
    input  logic                                            start,
    input  logic                                            issue,
    input  logic                                            last,
    input  logic [KERNEL_ROWS*COLUMNS_READ*OUTERS*CODE-1:0] rows,     // line buffers
    input  logic [KERNEL_ROWS-1:0]                          rows_reach,
    input  logic [SUMS*32-1:0]                              partial,  // what the sums start from
    output logic [READS*ENTRY_BITS-1:0]                     entry,    // each weight of each unit in LPRAM
    input  logic [READS*32-1:0]                             weights,  // its code
    output logic                                            out_valid,
    output logic [SUMS*32-1:0]                              out_row
);

    localparam int WIDTH       = 8;
    localparam int PLACES      = MAP_ROWS * MAP_COLUMNS;
    localparam int READ        = OUTERS / PLACES;  // channels
    localparam int PIXELS      = KERNEL_ROWS * COLUMNS_READ * PLACES;
    localparam int SHARED      = int'(FORMAT.block);
    localparam int SCALES      = SHARED > 0 ? (READ + SHARED - 1) / SHARED : 1;
    localparam int TAPS        = KERNEL_ROWS * KERNEL_COLUMNS * PLACES;
    localparam int BLOCKS      = (READ + DOT - 1) / DOT;
    localparam int WORDS       = CHANNELS * BLOCKS * TAPS;
    localparam int WORD_BITS   = WORDS > 1 ? $clog2(WORDS) : 1;
    localparam int WEIGHT_CODE = int'(WEIGHT.bits) + (WEIGHT.block != 17'd0 ? 8 : 0);

    // ---- Rows, channels innermost, and a scale for each block of them.

    logic [PIXELS*READ*WIDTH-1:0] numbers, ordered;
    logic [PIXELS*READ*8-1:0] each_scale;
    logic [PIXELS*SCALES*8-1:0] scales;
    wire unused = &each_scale;

    whole_numbers #(.FORMAT(FORMAT), .VALUES(PIXELS * READ), .WIDTH(WIDTH)) read (
        .codes(rows), .numbers, .scales(each_scale)
    );
    for (genvar pixel = 0; pixel < PIXELS; pixel++) begin : g_pixels
        for (genvar channel = 0; channel < READ; channel++) begin : g_channels
            localparam int AT = PLACES > 1 ? channel * PLACES + pixel : pixel * READ + channel;

            assign ordered[(pixel*READ+channel)*WIDTH+:WIDTH] = numbers[AT*WIDTH+:WIDTH];
            if (SHARED > 0 ? channel % (SHARED > 0 ? SHARED : 1) == 0 : channel == 0) begin : g_scale
                localparam int BLOCK = SHARED > 0 ? channel / (SHARED > 0 ? SHARED : 1) : 0;

                assign scales[(pixel*SCALES+BLOCK)*8+:8] = each_scale[AT*8+:8];
            end
        end
    end

    // ---- Weights of LPRAM. Those beyond the last channel meet zeros.

    logic [2*TILES*WORD_BITS-1:0] word;
    logic [READS*WEIGHT_CODE-1:0] codes;
    logic [READS*WIDTH-1:0] factors;
    logic [READS*8-1:0] each_weight_scale;
    logic [2*TILES*8-1:0] weight_scales;
    wire unused_weights = &{weights, each_weight_scale};

    whole_numbers #(.FORMAT(WEIGHT), .VALUES(READS), .WIDTH(WIDTH)) read_weights (
        .codes, .numbers(factors), .scales(each_weight_scale)
    );
    for (genvar one = 0; one < 2 * TILES; one++) begin : g_words
        int at, tap, first, channel;

        assign at = int'(word[one*WORD_BITS+:WORD_BITS]);
        assign tap = at % TAPS;
        assign first = at / TAPS % BLOCKS * DOT;
        assign channel = at / TAPS / BLOCKS;
        assign weight_scales[one*8+:8] = each_weight_scale[one*DOT*8+:8];
        for (genvar lane = 0; lane < DOT; lane++) begin : g_lanes
            int outer;

            assign outer = first + lane < READ ? first + lane : READ - 1;
            assign entry[(one*DOT+lane)*ENTRY_BITS+:ENTRY_BITS] = ENTRY_BITS'(
                (BACKWARD != 0 ? outer * CHANNELS + channel : channel * READ + outer) * TAPS + tap);
            assign codes[(one*DOT+lane)*WEIGHT_CODE+:WEIGHT_CODE] = weights[(one*DOT+lane)*32+:WEIGHT_CODE];
        end
    end

    dot_engine #(
        .BACKWARD(BACKWARD), .OUTERS(READ), .CHANNELS(CHANNELS), .COLUMNS(COLUMNS), .COLUMNS_READ(COLUMNS_READ * MAP_COLUMNS),
        .KERNEL_ROWS(KERNEL_ROWS * MAP_ROWS), .KERNEL_COLUMNS(KERNEL_COLUMNS * MAP_COLUMNS), .STRIDE(STRIDE), .PAD(PAD),
        .UNITS(TILES), .DOT(DOT), .WIDTH(WIDTH), .SHARED(SHARED), .STEPS(STEPS), .DEPTH(DEPTH), .LATENCY(LATENCY)
    ) of (
        .clk, .reset, .start, .issue, .last, .rows(ordered), .scales, .rows_reach({MAP_ROWS{rows_reach}}), .partial,
        .entry(word), .weights(factors), .weight_scales, .out_valid, .out_row
    );

endmodule
