// Some channels of a row: COUNT of CHANNELS from FIRST on. Wires alone.
module channels #(
    parameter int COLUMNS  = 1,
    parameter int CHANNELS = 1,
    parameter int FIRST    = 0,
    parameter int COUNT    = 1
) (
    input  logic [COLUMNS*CHANNELS*32-1:0] row,
    output logic [COLUMNS*COUNT*32-1:0]    some
);

    for (genvar column = 0; column < COLUMNS; column++) begin : g_columns
        assign some[column*COUNT*32+:COUNT*32] = row[(column*CHANNELS+FIRST)*32+:COUNT*32];
    end
    if (COUNT < CHANNELS) begin : g_rest
        wire unused = &row;
    end

endmodule
