// Weights rounded in blocks, once after each update: in each cycle a block is read from the master copy, and its codes are
// there three cycles later. By chance a block takes as many cycles as its words (`weight_words`); then weights that stand
// alone are rounded here, too, 8 at once. In reset they follow what the host writes.
//
// Blocks lie along the dimension in which the layer is not cut (docs/numbers.md). ACROSS: of output channels, for each
// input channel and tap; otherwise of the inputs and taps of an output channel. So a block is the GROUP-th of a PLACE.
module weight_blocks #(
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int WORDS      = 1,
    parameter int OUTPUTS    = 1,
    parameter int ACROSS     = 0,
    parameter int ALONG      = ACROSS != 0 ? OUTPUTS : WORDS / OUTPUTS,  // the dimension of the blocks
    parameter int MOST       = FORMAT.block != 17'd0 ? int'(FORMAT.block) : 8,
    parameter int SIZE       = ALONG < MOST ? ALONG : MOST,
    parameter int CODE       = int'(FORMAT.bits) + (FORMAT.block != 17'd0 ? 8 : 0),
    parameter int ENTRY_BITS = WORDS > 1 ? $clog2(WORDS) : 1,
    // By chance.
    parameter int FIRST      = 0,      // the place of the first weight in the layer
    parameter int ROW        = WORDS / OUTPUTS,  // weights of an output channel there
    parameter logic [31:0] STREAM = 32'd0,
    parameter logic [63:0] SEED   = 64'd0
) (
    input  logic                       clk,
    input  logic                       reset,
    input  logic                       start,
    output logic [SIZE*ENTRY_BITS-1:0] block_words,    // addresses of a block
    output logic [SIZE-1:0]            block_reaches,  // places that it has; others are 0
    input  logic [SIZE*32-1:0]         block,
    output logic [WORDS*CODE-1:0]      words,          // codes, each with its block's scale above
    output logic                       done
);

    localparam int BITS       = int'(FORMAT.bits);
    localparam int INNER      = WORDS / OUTPUTS;
    localparam int STRIDE     = ACROSS != 0 ? INNER : 1;
    localparam int PLACES     = ACROSS != 0 ? INNER : OUTPUTS;
    localparam int APART      = ACROSS != 0 ? 1 : INNER;        // words from a place to the next
    localparam int GROUPS     = (ALONG + SIZE - 1) / SIZE;
    localparam int PLACE_BITS = PLACES > 1 ? $clog2(PLACES) : 1;
    localparam int GROUP_BITS = GROUPS > 1 ? $clog2(GROUPS) : 1;

    // ---- Which block.

    logic running, updating, ready, last, write, last_written;
    logic [PLACE_BITS-1:0] place, place_written;
    logic [GROUP_BITS-1:0] group, group_written;

    assign last = ready && place == PLACE_BITS'(PLACES - 1) && group == GROUP_BITS'(GROUPS - 1);

    always_ff @(posedge clk) begin
        if (reset) begin
            running <= 1'b1;
            updating <= 1'b0;
            done <= 1'b0;
        end else begin
            if (start) running <= 1'b1;
            else if (last) running <= 1'b0;
            if (start) updating <= 1'b1;
            done <= write && last_written;
        end
        if (start || (reset && last)) begin
            place <= '0;
            group <= '0;
        end else if (ready && place == PLACE_BITS'(PLACES - 1)) begin
            place <= '0;
            group <= group + 1'b1;
        end else if (ready) place <= place + 1'b1;
    end

    // ---- Its random words.

    logic [SIZE*32-1:0] random;

    if (FORMAT.rounding == 2'd3) begin : g_by_chance
        logic [31:0] element;
        logic [63:0] update;

        always_ff @(posedge clk)
            if (reset) update <= '0;
            else if (start) update <= update + 64'd1;
        assign element = 32'(FIRST) + 32'(place) * 32'(ACROSS != 0 ? 1 : ROW)
            + 32'(group) * 32'(ACROSS != 0 ? SIZE * ROW : SIZE);
        weight_words #(.SIZE(SIZE), .STRIDE(ACROSS != 0 ? ROW : 0), .STREAM(STREAM), .SEED(SEED)) draws (
            .clk, .restart(start), .element, .update, .ready, .words(random)
        );
    end else begin : g_at_once
        assign ready = 1'b1;
        assign random = '0;
    end

    // ---- Its numbers, and two cycles later their codes.

    logic [SIZE*32-1:0] numbers;
    logic [7:0] scale;  // 1 where weights stand alone
    logic [SIZE*BITS-1:0] codes;

    for (genvar i = 0; i < SIZE; i++) begin : g_block
        assign block_reaches[i] = int'(group) * SIZE + i < ALONG;
        assign block_words[i*ENTRY_BITS+:ENTRY_BITS] = block_reaches[i]
            ? ENTRY_BITS'(int'(place) * APART + (int'(group) * SIZE + i) * STRIDE) : '0;
        pack #(.FORMAT(FORMAT)) value (
            .x(numbers[i*32+:32]), .exponent({1'b0, scale} - 9'd127), .code(codes[i*BITS+:BITS])
        );
    end
    if (FORMAT.block != 17'd0) begin : g_scaled
        quantise_blocks #(
            .VALUES(SIZE), .SIZE(SIZE), .FRACTION_BITS(int'(FORMAT.fraction_bits)),
            .LEAST_EXPONENT(int'(FORMAT.least_exponent)), .LARGEST(FORMAT.largest), .FLOOR(int'(FORMAT.floor)),
            .ROUNDING(int'(FORMAT.rounding)), .LATENCY(2)
        ) onto_grid (
            .clk, .x(block), .words(random), .y(numbers), .scales(scale)
        );
    end else begin : g_alone
        logic [SIZE*32-1:0] rounded;

        assign scale = 8'd127;
        for (genvar i = 0; i < SIZE; i++) begin : g_numbers
            on_grid #(.FORMAT(FORMAT)) onto_grid (
                .x(block[i*32+:32]), .word(random[i*32+:32]), .y(rounded[i*32+:32])
            );
        end
        registers #(.WIDTH(SIZE * 32), .STAGES(2)) after_round (.clk, .d(rounded), .q(numbers));
    end
    registers #(.WIDTH(PLACE_BITS + GROUP_BITS + 2), .STAGES(2)) alongside (
        .clk, .d({place, group, running && ready, last && updating && !reset}),
        .q({place_written, group_written, write, last_written})
    );

    wire unused = &codes;  // places that no block has

    // ---- What is kept: codes, and a scale for each block. A word is read with its block's.

    logic [WORDS*BITS-1:0] kept_codes;
    logic [PLACES*GROUPS*8-1:0] kept_scales;

    for (genvar b = 0; b < PLACES * GROUPS; b++) begin : g_scales
        always_ff @(posedge clk)
            if (write && place_written == PLACE_BITS'(b / GROUPS) && group_written == GROUP_BITS'(b % GROUPS))
                kept_scales[b*8+:8] <= scale;
    end
    if (FORMAT.block == 17'd0) begin : g_no_scales
        wire unused_scales = &kept_scales;
    end
    for (genvar w = 0; w < WORDS; w++) begin : g_words
        localparam int AT    = ACROSS != 0 ? w / INNER : w % INNER;
        localparam int PLACE = ACROSS != 0 ? w % INNER : w / INNER;
        localparam int BLOCK = PLACE * GROUPS + AT / SIZE;

        always_ff @(posedge clk)
            if (write && place_written == PLACE_BITS'(PLACE) && group_written == GROUP_BITS'(AT / SIZE))
                kept_codes[w*BITS+:BITS] <= codes[AT%SIZE*BITS+:BITS];
        assign words[w*CODE+:CODE] = CODE'({kept_scales[BLOCK*8+:8], kept_codes[w*BITS+:BITS]});
    end

endmodule
