// LPRAM: the parameters of a slice (FPDeep, section 5.2.2), as (output channel, input channel, kernel row, kernel
// column). Each tile of FP and EB reads the K x K weights of a pair of channels; the update, and the host, read and write
// words in a row.
module lpram #(
    parameter int WORDS      = 1,
    parameter int TAPS       = 1,
    parameter int FP_TILES   = 1,
    parameter int EB_TILES   = 1,
    parameter int LANES      = 1,
    parameter int ENTRY_BITS = WORDS > 1 ? $clog2(WORDS) : 1,
    parameter int WORD_BITS  = $clog2(WORDS + LANES)
) (
    input  logic                           clk,
    input  logic [FP_TILES*ENTRY_BITS-1:0] fp_entry,
    output logic [FP_TILES*TAPS*32-1:0]    fp_weights,
    input  logic [EB_TILES*ENTRY_BITS-1:0] eb_entry,
    output logic [EB_TILES*TAPS*32-1:0]    eb_weights,
    input  logic [WORD_BITS-1:0]           read_address,
    output logic [LANES*32-1:0]            read,
    input  logic                           write,
    input  logic [WORD_BITS-1:0]           write_address,
    input  logic [LANES*32-1:0]            written,
    input  logic                           host_write,
    input  logic [31:0]                    host_address,
    input  logic [31:0]                    host_data,
    output logic [31:0]                    host_read
);

    logic [31:0] words[WORDS];
    logic [ENTRY_BITS-1:0] host_word;

    assign host_word = host_address < 32'(WORDS) ? ENTRY_BITS'(host_address) : '0;
    assign host_read = words[host_word];

    always_ff @(posedge clk) begin
        if (write) begin
            for (int lane = 0; lane < LANES; lane++)
                if (int'(write_address) + lane < WORDS)
                    words[ENTRY_BITS'(int'(write_address)+lane)] <= written[lane*32+:32];
        end else if (host_write) words[host_word] <= host_data;
    end

    for (genvar t = 0; t < FP_TILES; t++) begin : g_fp
        for (genvar tap = 0; tap < TAPS; tap++) begin : g_taps
            assign fp_weights[(t*TAPS+tap)*32+:32] =
                words[fp_entry[t*ENTRY_BITS+:ENTRY_BITS]+ENTRY_BITS'(tap)];
        end
    end

    for (genvar t = 0; t < EB_TILES; t++) begin : g_eb
        for (genvar tap = 0; tap < TAPS; tap++) begin : g_taps
            assign eb_weights[(t*TAPS+tap)*32+:32] =
                words[eb_entry[t*ENTRY_BITS+:ENTRY_BITS]+ENTRY_BITS'(tap)];
        end
    end

    for (genvar lane = 0; lane < LANES; lane++) begin : g_reads
        assign read[lane*32+:32] =
            words[int'(read_address) + lane < WORDS ? ENTRY_BITS'(int'(read_address) + lane) : '0];
    end

endmodule
