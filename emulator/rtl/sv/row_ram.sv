// A memory of rows: Act-RAM, "a FIFO-based memory" (FPDeep, section 5.2.2), or that of output errors. Rows arrive in
// order, SLOTS samples of ROWS rows. Two readers, one for the way there (FP or EB) and one for PG, fill line buffers:
// each of a reader's taps names a row, or lies outside the map and reads zeros.
module row_ram #(
    parameter int WIDTH  = 32,
    parameter int ROWS   = 1,
    parameter int SLOTS  = 1,
    parameter int A_TAPS = 1,
    parameter int B_TAPS = 1,
    parameter int ADDRESS_BITS = ROWS * SLOTS > 1 ? $clog2(ROWS * SLOTS) : 1
) (
    input  logic                           clk,
    input  logic                           reset,
    input  logic                           in_valid,
    input  logic [WIDTH-1:0]               in_row,
    output logic [31:0]                    arrived,  // rows so far
    input  logic                           a_load,
    input  logic [A_TAPS*ADDRESS_BITS-1:0] a_address,
    input  logic [A_TAPS-1:0]              a_in_map,
    output logic [A_TAPS*WIDTH-1:0]        a_rows,
    input  logic                           b_load,
    input  logic [B_TAPS*ADDRESS_BITS-1:0] b_address,
    input  logic [B_TAPS-1:0]              b_in_map,
    output logic [B_TAPS*WIDTH-1:0]        b_rows
);

    logic [WIDTH-1:0] memory[ROWS*SLOTS];
    logic [ADDRESS_BITS-1:0] write_address;

    always_ff @(posedge clk) begin
        if (reset) begin
            arrived <= '0;
            write_address <= '0;
        end else if (in_valid) begin
            arrived <= arrived + 1;
            write_address <= write_address == ADDRESS_BITS'(ROWS * SLOTS - 1) ? '0 : write_address + 1'b1;
        end
        if (in_valid) memory[write_address] <= in_row;
    end

    for (genvar tap = 0; tap < A_TAPS; tap++) begin : g_a
        always_ff @(posedge clk)
            if (a_load)
                a_rows[tap*WIDTH+:WIDTH] <= a_in_map[tap] ? memory[a_address[tap*ADDRESS_BITS+:ADDRESS_BITS]] : '0;
    end

    for (genvar tap = 0; tap < B_TAPS; tap++) begin : g_b
        always_ff @(posedge clk)
            if (b_load)
                b_rows[tap*WIDTH+:WIDTH] <= b_in_map[tap] ? memory[b_address[tap*ADDRESS_BITS+:ADDRESS_BITS]] : '0;
    end

endmodule
