// Drives the Verilated arithmetic with corner cases and RANDOM drawn ones, and compares with this host's, bit by bit.
// Ends with status 1 after printing the first mismatches.
//
//     Varithmetic RANDOM
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "Varithmetic.h"
#include "numbers.h"
#include "verilated.h"

namespace {

// All latencies at once; what went in returns from each as many clocks later.
class MultiplyAdd {
   public:
    explicit MultiplyAdd(Varithmetic &model) : model_(model) {}

    void try_one(Triple in) {
        model_.a = in.a;
        model_.b = in.b;
        model_.c = in.c;
        uint32_t expected = canonical(std::fma(number_of(in.a), number_of(in.b), number_of(in.c)));
        past_[clocks_ % DEEP] = {in, expected};
        model_.clk = 0;
        model_.eval();
        const struct { uint64_t latency; uint32_t y; } outputs[] = {
            {0, model_.fma_0}, {1, model_.fma_1}, {2, model_.fma_2},
            {3, model_.fma_3}, {4, model_.fma_4}, {6, model_.fma_6},
        };
        for (const auto &output : outputs)
            if (clocks_ >= output.latency) compare(output.latency, past_[(clocks_ - output.latency) % DEEP], output.y);
        model_.clk = 1;
        model_.eval();
        ++clocks_;
    }

    void flush() {
        for (uint64_t i = 0; i < DEEP; ++i) try_one({0, 0, 0});
    }

    uint64_t mismatches() const { return mismatches_; }

   private:
    static constexpr uint64_t DEEP = 8;
    struct Tried {
        Triple in;
        uint32_t expected;
    };

    void compare(uint64_t latency, const Tried &tried, uint32_t y) {
        if (y == tried.expected) return;
        if (++mismatches_ <= 10)
            std::printf("latency %d: fma(%08x, %08x, %08x) is %08x, not %08x\n", static_cast<int>(latency), tried.in.a,
                        tried.in.b, tried.in.c, tried.expected, y);
    }

    Varithmetic &model_;
    Tried past_[DEEP] = {};
    uint64_t clocks_ = 0, mismatches_ = 0;
};

uint64_t try_fma(Varithmetic &model, uint64_t random) {
    MultiplyAdd fma(model);
    const std::vector<uint32_t> values = corners();
    for (uint32_t a : values)
        for (uint32_t b : values)
            for (uint32_t c : values) fma.try_one({a, b, c});
    Draw draw;
    uint64_t subnormal = 0, cancelled = 0;
    for (uint64_t i = 0; i < random; ++i) {
        Triple drawn = drawn_triple(draw);
        float a = number_of(drawn.a), b = number_of(drawn.b), c = number_of(drawn.c), y = std::fma(a, b, c);
        subnormal += std::fpclassify(y) == FP_SUBNORMAL;
        cancelled += std::isfinite(c) && c != 0 && std::fabs(y) < std::fabs(c) / 2;
        fma.try_one(drawn);
    }
    fma.flush();
    std::printf("fma: %zu corner cases, %" PRIu64 " random, of which %" PRIu64 " subnormal results and %" PRIu64
                " cancellations: %" PRIu64 " mismatches\n",
                values.size() * values.size() * values.size(), random, subnormal, cancelled, fma.mismatches());
    return fma.mismatches();
}

// As in arithmetic.sv: the first are bf16 with and without subnormal numbers, the last two E4M3 and E5M2.
constexpr Format FORMATS[] = {{"bf16", 8, true},         {"normal bf16", 8, false},  {"fp16", 11, false},
                              {"scaled E4M3", 4, true},  {"E4M3", 4, false, 3, 7},   {"E5M2", 3, false, 2, 15}};
constexpr int COUNT = sizeof FORMATS / sizeof FORMATS[0];

// Narrow factors of all formats side by side, at once and four clocks later.
class NarrowMultiplyAdd {
   public:
    explicit NarrowMultiplyAdd(Varithmetic &model) : model_(model) {}

    void try_all(const Triple *in) {
        for (int i = 0; i < COUNT; ++i) {
            model_.narrow_a[i] = in[i].a;
            model_.narrow_b[i] = in[i].b;
            model_.narrow_c[i] = in[i].c;
            past_[clocks_ % DEEP][i] = {
                in[i], canonical(std::fma(number_of(in[i].a), number_of(in[i].b), number_of(in[i].c)))};
        }
        model_.clk = 0;
        model_.eval();
        for (int i = 0; i < COUNT; ++i) {
            compare(FORMATS[i].name, past_[clocks_ % DEEP][i], model_.narrow_0[i]);
            if (clocks_ >= 4) compare(FORMATS[i].name, past_[(clocks_ - 4) % DEEP][i], model_.narrow_4[i]);
        }
        model_.clk = 1;
        model_.eval();
        ++clocks_;
    }

    void flush() {
        const Triple zeros[COUNT] = {};
        for (uint64_t i = 0; i < DEEP; ++i) try_all(zeros);
    }

    uint64_t mismatches() const { return mismatches_; }

   private:
    static constexpr uint64_t DEEP = 8;
    struct Tried {
        Triple in;
        uint32_t expected;
    };

    void compare(const char *format, const Tried &tried, uint32_t y) {
        if (y == tried.expected) return;
        if (++mismatches_ <= 10)
            std::printf("%s: fma(%08x, %08x, %08x) is %08x, not %08x\n", format, tried.in.a, tried.in.b, tried.in.c,
                        tried.expected, y);
    }

    Varithmetic &model_;
    Tried past_[DEEP][COUNT] = {};
    uint64_t clocks_ = 0, mismatches_ = 0;
};

// Half of the addends are minus the product, or a few places beside it.
uint32_t addend(Draw &draw, uint32_t a, uint32_t b, uint32_t c) {
    if (draw.below(2)) return c;
    return canonical(number_of(bits_of(-number_of(a) * number_of(b)) + draw.below(5) - 2));
}

uint64_t try_narrow(Varithmetic &model, uint64_t random) {
    NarrowMultiplyAdd fma(model);
    Draw draw;
    Triple in[COUNT] = {};
    const std::vector<uint32_t> values = corners();
    for (uint32_t a : values)
        for (uint32_t b : values)
            for (uint32_t c : values) {
                for (int i = 0; i < COUNT; ++i) in[i] = {FORMATS[i].cut(a), FORMATS[i].cut(b), c};
                fma.try_all(in);
            }
    for (uint64_t i = 0; i < random; ++i) {
        Triple drawn = drawn_triple(draw);
        for (int k = 0; k < COUNT; ++k) {
            uint32_t a = FORMATS[k].cut(drawn.a), b = FORMATS[k].cut(drawn.b);
            in[k] = {a, b, addend(draw, a, b, drawn.c)};
        }
        fma.try_all(in);
    }
    const uint64_t pairs = random < 1 << 16 ? random : 1 << 16;  // of codes
    for (uint64_t i = 0; i < pairs; ++i) {
        for (int k = COUNT - 2; k < COUNT; ++k) {
            uint32_t a = FORMATS[k].value(i & 0xff), b = FORMATS[k].value(i >> 8);
            in[k] = {a, b, addend(draw, a, b, with_exponent(draw, 97 + static_cast<int>(draw.below(60))))};
        }
        fma.try_all(in);
    }
    fma.flush();
    std::printf("narrow fma: %d formats, %" PRIu64 " random, %" PRIu64 " pairs of codes: %" PRIu64 " mismatches\n", COUNT,
                random, pairs, fma.mismatches());
    return fma.mismatches();
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: arithmetic RANDOM\n");
        return 2;
    }
    Varithmetic model;
    uint64_t random = std::strtoull(argv[1], nullptr, 10);
    return try_fma(model, random) + try_narrow(model, random) == 0 ? 0 : 1;
}
