// Sends records from the standard input through the Verilated module `stream`, one a clock; what it has before the clock's
// edge goes to the standard output.
#include <cstdio>
#include <cstring>
#include <vector>

#include "Vstream.h"
#include "verilated.h"

int main() {
    Vstream model;
    std::vector<unsigned char> record(sizeof model.in), made(sizeof model.out);
    while (std::fread(record.data(), record.size(), 1, stdin) == 1) {
        std::memcpy(&model.in, record.data(), record.size());
        model.clk = 0;
        model.eval();
        std::memcpy(made.data(), &model.out, made.size());
        if (std::fwrite(made.data(), made.size(), 1, stdout) != 1) return 1;
        model.clk = 1;
        model.eval();
    }
    return 0;
}
