// Numbers to try arithmetic with: corners, and drawn ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

constexpr uint32_t QUIET_NAN = 0x7fc00000;

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float number_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t canonical(float x) { return std::isnan(x) ? QUIET_NAN : bits_of(x); }

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
inline std::vector<uint32_t> corners() {
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
inline uint32_t with_exponent(Draw &draw, int exponent) {
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
inline Triple drawn_triple(Draw &draw) {
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

// A format whose values are fp32 numbers of `significand` bits; OCP's codes of 8 bits have `fraction` ones behind the
// leading one, and `bias`.
struct Format {
    const char *name;
    int significand;
    bool subnormal;  // some are fp32's subnormal numbers
    int fraction = 0, bias = 0;

    // The number without its low bits.
    uint32_t cut(uint32_t bits) const {
        if (std::isnan(number_of(bits))) return QUIET_NAN;
        if (!subnormal && (bits & 0x7f800000) == 0) return bits & 0x80000000;
        return bits & (0xffffffffu << (24 - significand));
    }

    // The value of a code of 8 bits; E5M2 has infinities.
    uint32_t value(int code) const {
        int part = code & ((1 << fraction) - 1), exponent = (code & 0x7f) >> fraction, most = 0x7f >> fraction;
        float magnitude = std::ldexp(exponent ? part + (1 << fraction) : part, (exponent ? exponent : 1) - bias - fraction);
        if (fraction == 2 && exponent == most) magnitude = part ? NAN : INFINITY;
        if (fraction == 3 && (code & 0x7f) == 0x7f) magnitude = NAN;
        return canonical(code & 0x80 ? -magnitude : magnitude);
    }
};
