// Control by the schedule `sync`: all samples of a mini-batch see the weights that the one before it made. A device has
// new weights when the last of its UNITS has updated; then the samples of the next mini-batch may start.
module mini_batch #(
    parameter int UNITS = 1
) (
    input  logic             clk,
    input  logic             reset,
    input  logic [31:0]      batch,
    input  logic [4*32-1:0]  settings,  // of the update
    input  logic [UNITS-1:0] updated,
    output logic [31:0]      samples,   // of a mini-batch
    output logic [31:0]      share,
    output logic [31:0]      rate,
    output logic [31:0]      momentum,
    output logic [31:0]      decay,
    output logic [31:0]      limit,  // samples that the weights are for, since the start
    output logic             done
);

    logic [UNITS-1:0] ended;

    assign done = (ended | updated) == '1 && !reset;

    always_ff @(posedge clk) begin
        {share, rate, momentum, decay} <= settings;
        if (reset) samples <= batch;
    end

    always_ff @(posedge clk)
        if (reset) begin
            ended <= '0;
            limit <= batch;
        end else begin
            ended <= done ? '0 : ended | updated;
            if (done) limit <= limit + samples;
        end

endmodule
