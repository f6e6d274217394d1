// LPRAM: the parameters of a slice (FPDeep, section 5.2.2), as (output channel, input channel, kernel row, kernel
// column). Each tile of FP and EB reads the K x K weights of a pair of channels; the update, and the host, read and write
// words in a row.
//
// Words are codes of a format, to which what is written is rounded. With a MASTER the update, and the host, read and write
// a copy in fp32. Where words share scales, or are rounded by chance, `weight_blocks` rounds them when the update is `done`;
// so they are `settled` later. Others are with the update.
module lpram #(
    parameter int WORDS      = 1,
    parameter int TAPS       = 1,
    parameter int FP_TILES   = 1,
    parameter int EB_TILES   = 1,
    parameter int LANES      = 1,
    parameter formats::format_t FORMAT = formats::FP32,
    parameter int MASTER     = 0,
    parameter int CODED      = 0,  // FP and EB read codes, in the lower bits
    parameter int OUTPUTS    = 1,  // output channels
    parameter int ACROSS     = 0,  // blocks are of output channels
    parameter int FIRST      = 0,  // as `weight_blocks` has them
    parameter int ROW        = WORDS / OUTPUTS,
    parameter logic [31:0] STREAM = 32'd0,
    parameter logic [63:0] SEED   = 64'd0,
    parameter int ENTRY_BITS = WORDS > 1 ? $clog2(WORDS) : 1,
    parameter int WORD_BITS  = $clog2(WORDS + LANES)
) (
    input  logic                           clk,
    input  logic                           reset,
    input  logic [FP_TILES*ENTRY_BITS-1:0] fp_entry,
    output logic [FP_TILES*TAPS*32-1:0]    fp_weights,
    input  logic [EB_TILES*ENTRY_BITS-1:0] eb_entry,
    output logic [EB_TILES*TAPS*32-1:0]    eb_weights,
    input  logic [WORD_BITS-1:0]           read_address,
    output logic [LANES*32-1:0]            read,
    input  logic                           write,
    input  logic [WORD_BITS-1:0]           write_address,
    input  logic [LANES*32-1:0]            written,
    input  logic                           done,
    output logic                           settled,
    input  logic                           host_write,
    input  logic [31:0]                    host_address,
    input  logic [31:0]                    host_data,
    output logic [31:0]                    host_read,
    output logic [31:0]                    host_master  // 0 without one
);

    localparam int BITS = int'(FORMAT.bits);
    localparam int CODE = BITS + (FORMAT.block != 17'd0 ? 8 : 0);

    logic [ENTRY_BITS-1:0] host_word;
    logic [FP_TILES*TAPS*CODE-1:0] fp_codes;
    logic [EB_TILES*TAPS*CODE-1:0] eb_codes;
    logic [CODE-1:0] host_code;
    logic [FP_TILES*TAPS*ENTRY_BITS-1:0] fp_words;
    logic [EB_TILES*TAPS*ENTRY_BITS-1:0] eb_words;
    logic [LANES*ENTRY_BITS-1:0] read_words;

    assign host_word = host_address < WORDS ? ENTRY_BITS'(host_address) : '0;
    unpack #(.FORMAT(FORMAT)) host_value (.code(host_code), .x(host_read));
    for (genvar lane = 0; lane < LANES; lane++) begin : g_lanes
        assign read_words[lane*ENTRY_BITS+:ENTRY_BITS] =
            int'(read_address) + lane < WORDS ? ENTRY_BITS'(int'(read_address) + lane) : '0;
    end

    // ---- What tiles read.

    for (genvar i = 0; i < FP_TILES * TAPS; i++) begin : g_fp
        assign fp_words[i*ENTRY_BITS+:ENTRY_BITS] = fp_entry[i/TAPS*ENTRY_BITS+:ENTRY_BITS] + ENTRY_BITS'(i % TAPS);
        if (CODED != 0) begin : g_code
            assign fp_weights[i*32+:32] = 32'(fp_codes[i*CODE+:CODE]);
        end else begin : g_number
            unpack #(.FORMAT(FORMAT)) value (.code(fp_codes[i*CODE+:CODE]), .x(fp_weights[i*32+:32]));
        end
    end
    for (genvar i = 0; i < EB_TILES * TAPS; i++) begin : g_eb
        assign eb_words[i*ENTRY_BITS+:ENTRY_BITS] = eb_entry[i/TAPS*ENTRY_BITS+:ENTRY_BITS] + ENTRY_BITS'(i % TAPS);
        if (CODED != 0) begin : g_code
            assign eb_weights[i*32+:32] = 32'(eb_codes[i*CODE+:CODE]);
        end else begin : g_number
            unpack #(.FORMAT(FORMAT)) value (.code(eb_codes[i*CODE+:CODE]), .x(eb_weights[i*32+:32]));
        end
    end

    // ---- The copy that updates change.

    if (MASTER != 0) begin : g_master
        logic [31:0] words[WORDS];

        always_ff @(posedge clk) begin
            if (write) begin
                for (int lane = 0; lane < LANES; lane++)
                    if (int'(write_address) + lane < WORDS)
                        words[ENTRY_BITS'(int'(write_address)+lane)] <= written[lane*32+:32];
            end else if (host_write) words[host_word] <= host_data;
        end

        assign host_master = words[host_word];
        for (genvar lane = 0; lane < LANES; lane++) begin : g_reads
            assign read[lane*32+:32] = words[read_words[lane*ENTRY_BITS+:ENTRY_BITS]];
        end
    end else begin : g_no_master
        assign host_master = 32'd0;
    end

    // ---- The words.

    if (FORMAT.block != 17'd0 || FORMAT.rounding == 2'd3) begin : g_blocks
        localparam int LIES  = FORMAT.block != 17'd0 ? ACROSS : 0;
        localparam int ALONG = LIES != 0 ? OUTPUTS : WORDS / OUTPUTS;
        localparam int MOST  = FORMAT.block != 17'd0 ? int'(FORMAT.block) : 8;
        localparam int SIZE  = ALONG < MOST ? ALONG : MOST;  // of a block

        logic [WORDS*CODE-1:0] words;
        logic [SIZE*ENTRY_BITS-1:0] block_words;
        logic [SIZE-1:0] block_reaches;
        logic [SIZE*32-1:0] block;

        for (genvar i = 0; i < SIZE; i++) begin : g_reads
            assign block[i*32+:32] = block_reaches[i] ? g_master.words[block_words[i*ENTRY_BITS+:ENTRY_BITS]] : 32'd0;
        end
        weight_blocks #(
            .FORMAT(FORMAT), .WORDS(WORDS), .OUTPUTS(OUTPUTS), .ACROSS(LIES), .FIRST(FIRST), .ROW(ROW),
            .STREAM(STREAM), .SEED(SEED)
        ) to_grid (
            .clk, .reset, .start(done), .block_words, .block_reaches, .block, .words, .done(settled)
        );
        for (genvar i = 0; i < FP_TILES * TAPS; i++) begin : g_fp_reads
            assign fp_codes[i*CODE+:CODE] = words[int'(fp_words[i*ENTRY_BITS+:ENTRY_BITS])*CODE+:CODE];
        end
        for (genvar i = 0; i < EB_TILES * TAPS; i++) begin : g_eb_reads
            assign eb_codes[i*CODE+:CODE] = words[int'(eb_words[i*ENTRY_BITS+:ENTRY_BITS])*CODE+:CODE];
        end
        assign host_code = words[int'(host_word)*CODE+:CODE];
    end else begin : g_alone
        logic [BITS-1:0] words[WORDS];
        logic [LANES*BITS-1:0] codes;
        logic [BITS-1:0] new_code;
        logic [31:0] host_number;

        wire unused = reset;
        assign settled = done;
        for (genvar lane = 0; lane < LANES; lane++) begin : g_written
            logic [31:0] number;

            on_grid #(.FORMAT(FORMAT)) to_grid (.x(written[lane*32+:32]), .word('0), .y(number));
            pack #(.FORMAT(FORMAT)) value (.x(number), .exponent('0), .code(codes[lane*BITS+:BITS]));
        end
        on_grid #(.FORMAT(FORMAT)) host_to_grid (.x(host_data), .word('0), .y(host_number));
        pack #(.FORMAT(FORMAT)) new_value (.x(host_number), .exponent('0), .code(new_code));

        always_ff @(posedge clk) begin
            if (write) begin
                for (int lane = 0; lane < LANES; lane++)
                    if (int'(write_address) + lane < WORDS)
                        words[ENTRY_BITS'(int'(write_address)+lane)] <= codes[lane*BITS+:BITS];
            end else if (host_write) words[host_word] <= new_code;
        end

        for (genvar i = 0; i < FP_TILES * TAPS; i++) begin : g_fp_reads
            assign fp_codes[i*CODE+:CODE] = words[fp_words[i*ENTRY_BITS+:ENTRY_BITS]];
        end
        for (genvar i = 0; i < EB_TILES * TAPS; i++) begin : g_eb_reads
            assign eb_codes[i*CODE+:CODE] = words[eb_words[i*ENTRY_BITS+:ENTRY_BITS]];
        end
        assign host_code = words[host_word];
        if (MASTER == 0) begin : g_updated
            for (genvar lane = 0; lane < LANES; lane++) begin : g_reads
                unpack #(.FORMAT(FORMAT)) value (
                    .code(words[read_words[lane*ENTRY_BITS+:ENTRY_BITS]]), .x(read[lane*32+:32])
                );
            end
        end
    end

endmodule
