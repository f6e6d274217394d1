// Drives the Verilated arithmetic with corner cases and `RANDOM` drawn ones, and compares with this host's, bit by bit.
// Ends with status 1 after printing the first mismatches.
//
//     arithmetic fma RANDOM
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "Varithmetic.h"
#include "verilated.h"

namespace {

constexpr uint32_t QUIET_NAN = 0x7fc00000;

uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

float number_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t canonical(float x) { return std::isnan(x) ? QUIET_NAN : bits_of(x); }

// SplitMix64.
class Draw {
   public:
    uint64_t operator()() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(((*this)() >> 32) * n >> 32); }

   private:
    uint64_t state_ = 19;
};

// Zeros, subnormal numbers, neighbours of powers of two and of the largest number, infinities, NaNs; of both signs.
std::vector<uint32_t> corners() {
    const uint32_t magnitudes[] = {
        0x00000000, 0x00000001, 0x00000002, 0x00000003, 0x00400000, 0x007ffffe, 0x007fffff,  // zero, subnormal
        0x00800000, 0x00800001, 0x00800002, 0x00ffffff, 0x01000000, 0x01000001,              // smallest normal
        0x0c000000, 0x0c7fffff, 0x1a800001, 0x1fffffff, 0x20000000, 0x20000001,  // their products are about the smallest
        0x33000000, 0x33800000, 0x33800001, 0x34000000,                          // half a place of 1 and its neighbours
        0x3effffff, 0x3f000000, 0x3f000001, 0x3f7ffffe, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f800002, 0x3f800003,
        0x3fc00000, 0x3fffffff, 0x40000000, 0x40400000, 0x4b000000, 0x4b7fffff, 0x4b800000, 0x4b800001,  // 1, 2, 3, 2^23
        0x5f000000, 0x5f7fffff, 0x5f800001, 0x72800000, 0x7e7fffff, 0x7e800000, 0x7effffff, 0x7f000000,  // large
        0x7f7ffffe, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff,                // largest, infinity, NaN
    };
    std::vector<uint32_t> both;
    for (uint32_t magnitude : magnitudes) {
        both.push_back(magnitude);
        both.push_back(magnitude | 0x80000000);
    }
    return both;
}

struct Triple {
    uint32_t a, b, c;
};

// A number with that biased exponent, held to what there is; long runs of equal bits are as frequent as any others.
uint32_t with_exponent(Draw &draw, int exponent) {
    uint64_t drawn = draw();
    uint32_t fraction = drawn & 0x7fffff;
    switch (drawn >> 60) {
        case 0: fraction = 0; break;
        case 1: fraction = 0x7fffff; break;
        case 2: fraction = 1u << draw.below(23); break;
        case 3: fraction = 0x7fffff ^ (1u << draw.below(23)); break;
        case 4: fraction &= 0x7fffffu << draw.below(23); break;
        default: break;
    }
    exponent = exponent < 0 ? 0 : exponent > 254 ? 254 : exponent;
    return static_cast<uint32_t>(drawn >> 32 & 0x80000000) | static_cast<uint32_t>(exponent) << 23 | fraction;
}

// Half of them any bits, half such that c is near the product, cancels it, is half a place off, or all is subnormal.
Triple drawn_triple(Draw &draw) {
    switch (draw.below(8)) {
        case 0:
        case 1:
        case 2:
        case 3: {
            uint64_t two = draw();
            return {static_cast<uint32_t>(two), static_cast<uint32_t>(two >> 32), static_cast<uint32_t>(draw())};
        }
        case 4:
        case 5: {  // exponents near each other, over the addend's whole way
            int a = static_cast<int>(draw.below(255)), b = static_cast<int>(draw.below(255));
            return {with_exponent(draw, a), with_exponent(draw, b),
                    with_exponent(draw, a + b - 127 + static_cast<int>(draw.below(120)) - 60)};
        }
        case 6: {  // c is minus the product as fp32 has it, or a few places beside it
            int a = static_cast<int>(draw.below(255)), b = 40 + static_cast<int>(draw.below(175));
            uint32_t x = with_exponent(draw, a), y = with_exponent(draw, b);
            uint32_t near = bits_of(-number_of(x) * number_of(y)) + draw.below(5) - 2;
            return {x, y, near};
        }
        default: {  // products about the smallest numbers, addends too
            int a = static_cast<int>(draw.below(255));
            int b = 127 - a + static_cast<int>(draw.below(60)) - 40;
            return {with_exponent(draw, a), with_exponent(draw, b), with_exponent(draw, static_cast<int>(draw.below(24)))};
        }
    }
}

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
    std::printf("fma: %zu corner cases, %llu random, of which %llu subnormal results and %llu cancellations: %llu mismatches\n",
                values.size() * values.size() * values.size(), static_cast<unsigned long long>(random),
                static_cast<unsigned long long>(subnormal), static_cast<unsigned long long>(cancelled),
                static_cast<unsigned long long>(fma.mismatches()));
    return fma.mismatches();
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3 || std::strcmp(argv[1], "fma") != 0) {
        std::fprintf(stderr, "usage: arithmetic fma RANDOM\n");
        return 2;
    }
    Varithmetic model;
    return try_fma(model, std::strtoull(argv[2], nullptr, 10)) == 0 ? 0 : 1;
}
