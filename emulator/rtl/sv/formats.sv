// Number formats as parameters of modules (docs/numbers.md): the fields of a grid of kernels/number, and how it is reached.
package formats;

    typedef struct packed {
        logic [5:0]        bits;            // of a number in memory, without its block's scale
        logic [4:0]        fraction_bits;
        logic signed [8:0] least_exponent;
        logic [31:0]       largest;         // as an fp32 number
        logic              overflows;       // to infinity
        logic [1:0]        rounding;        // even, away, zero: as `quantise` has them
        logic [16:0]       block;           // numbers that share a scale; 0: each stands alone
        logic              floor;           // the scale is by OCP's rule
    } format_t;

    localparam format_t FP32 = {6'd32, 5'd23, -9'sd126, 32'h7f7f_ffff, 1'b1, 2'd0, 17'd0, 1'b0};

endpackage
