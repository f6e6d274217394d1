// Control of an engine by rows: a row starts when the engine is free and what it needs is there (docs/time-model.md).
// Rows of a sample are in order, and so are samples. A row occupies the engine for GROUPS * EVERY cycles: in each
// group of convolutions every tile takes one, and a group is issued every EVERY cycles.
module row_control #(
    parameter int ROWS   = 1,
    parameter int GROUPS = 1,
    parameter int EVERY  = 1,
    parameter int ROW_BITS = ROWS > 1 ? $clog2(ROWS) : 1
) (
    input  logic                clk,
    input  logic                reset,
    input  logic                ready,   // what row `row` of sample `sample` needs is there
    output logic [31:0]         sample,
    output logic [ROW_BITS-1:0] row,
    output logic                start,   // this row starts
    output logic                issue,   // from the cycle after: a group of convolutions is issued
    output logic                last     // it is the row's last
);

    localparam int CYCLES      = GROUPS * EVERY;
    localparam int CYCLE_BITS  = CYCLES > 1 ? $clog2(CYCLES) : 1;
    localparam int GROUP_BITS  = GROUPS > 1 ? $clog2(GROUPS) : 1;
    localparam int PHASE_BITS  = EVERY > 1 ? $clog2(EVERY) : 1;

    logic [CYCLE_BITS-1:0] busy;
    logic [GROUP_BITS-1:0] groups;
    logic [PHASE_BITS-1:0] phase;
    logic issuing;

    assign start = ready && busy == '0 && !reset;
    assign issue = issuing && phase == '0;
    assign last = issue && groups == '0;

    always_ff @(posedge clk) begin
        if (reset) begin
            busy <= '0;
            row <= '0;
            sample <= '0;
            issuing <= 1'b0;
        end else begin
            if (start) begin
                busy <= CYCLE_BITS'(CYCLES - 1);
                row <= row == ROW_BITS'(ROWS - 1) ? '0 : row + 1'b1;
                if (row == ROW_BITS'(ROWS - 1)) sample <= sample + 1;
            end else if (busy != '0) busy <= busy - 1'b1;
            if (start) issuing <= 1'b1;
            else if (last) issuing <= 1'b0;
        end
        if (start) begin
            groups <= GROUP_BITS'(GROUPS - 1);
            phase <= '0;
        end else if (issuing) begin
            if (issue) groups <= groups - 1'b1;
            phase <= issue ? PHASE_BITS'(EVERY - 1) : phase - 1'b1;
        end
    end

endmodule
