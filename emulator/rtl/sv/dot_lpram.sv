// LPRAM of weights that are read in blocks (`dot_engine`): a word has the codes of DOT weights of a channel at a place of
// the kernel, and the scale that these share. The host writes words.
module dot_lpram #(
    parameter int WORDS      = 1,
    parameter int CODES      = 64,  // bits of a word's codes
    parameter int READS      = 2,
    parameter int ENTRY_BITS = WORDS > 1 ? $clog2(WORDS) : 1
) (
    input  logic                        clk,
    input  logic                        host_write,
    input  logic [31:0]                 host_address,
    input  logic [CODES+8-1:0]          host_data,  // the scale above the codes
    input  logic [READS*ENTRY_BITS-1:0] entry,
    output logic [READS*CODES-1:0]      codes,
    output logic [READS*8-1:0]          scales
);

    logic [CODES+8-1:0] words[WORDS];
    wire unused = &host_address;  // bits above those of an entry

    always_ff @(posedge clk) if (host_write) words[ENTRY_BITS'(host_address)] <= host_data;

    for (genvar i = 0; i < READS; i++) begin : g_reads
        assign {scales[i*8+:8], codes[i*CODES+:CODES]} = words[entry[i*ENTRY_BITS+:ENTRY_BITS]];
    end

endmodule
