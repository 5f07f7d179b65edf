// Sixteen lanes in plain C++: what every level means by an operation, and what runs off x86.
//
// Each operation is rounded once, as IEEE 754 says, so that a kernel written with them has the same
// bits at every level. Where a processor leaves a choice it is made here: max and min give the
// second operand where either is NaN, as the x86 instructions do; to_int rounds to nearest even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace forwardpass::portable {

constexpr int width = 16;

struct F { float v[width]; };
struct I { std::int32_t v[width]; };
struct M { bool v[width]; };

template <class R, class Op> inline R lanes(Op op) {
    R out;
    for (int i = 0; i < width; ++i) out.v[i] = op(i);
    return out;
}

inline F zero() { return lanes<F>([](int) { return 0.0f; }); }
inline F set(float x) { return lanes<F>([=](int) { return x; }); }
inline F load(const float *p) { return lanes<F>([=](int i) { return p[i]; }); }
inline void store(float *p, F x) { std::memcpy(p, x.v, sizeof x.v); }
// The first n lanes from memory, the others 0; nothing behind the n is touched.
inline F load_first(const float *p, int n) {
    return lanes<F>([=](int i) { return i < n ? p[i] : 0.0f; });
}
inline void store_first(float *p, F x, int n) {
    for (int i = 0; i < n; ++i) p[i] = x.v[i];
}
inline F add(F a, F b) { return lanes<F>([&](int i) { return a.v[i] + b.v[i]; }); }
inline F sub(F a, F b) { return lanes<F>([&](int i) { return a.v[i] - b.v[i]; }); }
inline F mul(F a, F b) { return lanes<F>([&](int i) { return a.v[i] * b.v[i]; }); }
inline F div(F a, F b) { return lanes<F>([&](int i) { return a.v[i] / b.v[i]; }); }
inline F fma(F a, F b, F c) {  // a·b + c, rounded once
    return lanes<F>([&](int i) { return std::fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline F sqrt(F a) { return lanes<F>([&](int i) { return std::sqrt(a.v[i]); }); }
inline F max(F a, F b) { return lanes<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline F min(F a, F b) { return lanes<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
inline F abs(F a) { return lanes<F>([&](int i) { return std::fabs(a.v[i]); }); }
inline M less(F a, F b) { return lanes<M>([&](int i) { return a.v[i] < b.v[i]; }); }
inline F select(M m, F a, F b) { return lanes<F>([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; }); }
inline M first(int n) { return lanes<M>([=](int i) { return i < n; }); }

inline I set_int(std::int32_t x) { return lanes<I>([=](int) { return x; }); }
inline I load_int(const std::int32_t *p) { return lanes<I>([=](int i) { return p[i]; }); }
inline void store_int(std::int32_t *p, I x) { std::memcpy(p, x.v, sizeof x.v); }
inline I add_int(I a, I b) { return lanes<I>([&](int i) { return a.v[i] + b.v[i]; }); }
inline I sub_int(I a, I b) { return lanes<I>([&](int i) { return a.v[i] - b.v[i]; }); }
inline I mul_int(I a, I b) { return lanes<I>([&](int i) { return a.v[i] * b.v[i]; }); }
template <int n> inline I shift_left(I a) {
    return lanes<I>([&](int i) {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) << n);
    });
}
inline F to_float(I a) { return lanes<F>([&](int i) { return static_cast<float>(a.v[i]); }); }
inline I to_int(F a) {  // to nearest even; out of range or NaN: the smallest int32, as on x86
    return lanes<I>([&](int i) {
        const float x = a.v[i];
        if (!(x >= -2147483648.0f && x < 2147483648.0f)) return INT32_MIN;
        return static_cast<std::int32_t>(std::nearbyintf(x));
    });
}
inline F bits_to_float(I a) {
    F out;
    std::memcpy(out.v, a.v, sizeof out.v);
    return out;
}
inline I float_to_bits(F a) {
    I out;
    std::memcpy(out.v, a.v, sizeof out.v);
    return out;
}

inline float f16_value(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    std::uint32_t bits;
    if (rest >= 0x7c00u) {  // infinite, or NaN, which the instruction makes quiet
        bits = sign | 0x7f800000u | (rest & 0x3ffu) << 13 | (rest > 0x7c00u ? 0x400000u : 0u);
    } else if (rest >= 0x400u) {
        bits = sign | ((rest << 13) + (112u << 23));
    } else {  // zero or subnormal: a multiple of 2^-24
        const float value = static_cast<float>(rest) * 0x1p-24f;
        return sign ? -value : value;
    }
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline std::uint16_t f16_bits(float value) {  // to nearest even
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    if (rest >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (rest < 0x38800000u) {  // below the normal halves: in steps of 2^-24
        const float scaled = std::fabs(value) * 0x1p24f;
        return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::nearbyintf(scaled)));
    }
    const std::uint32_t rounded = rest + 0xfffu + (rest >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | (rounded - (112u << 23)) >> 13);
}
inline float bf16_value(std::uint16_t upper) {
    const std::uint32_t bits = static_cast<std::uint32_t>(upper) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline F load_f16(const std::uint16_t *p) {
    return lanes<F>([=](int i) { return f16_value(p[i]); });
}
inline void store_f16(std::uint16_t *p, F x) {
    for (int i = 0; i < width; ++i) p[i] = f16_bits(x.v[i]);
}
inline F load_bf16(const std::uint16_t *p) {
    return lanes<F>([=](int i) { return bf16_value(p[i]); });
}
inline I load_bytes(const std::uint8_t *p) {
    return lanes<I>([=](int i) { return std::int32_t{p[i]}; });
}
inline I load_signed_bytes(const std::int8_t *p) {
    return lanes<I>([=](int i) { return std::int32_t{p[i]}; });
}

// Lane i with lane i + 8, then + 4, + 2, + 1: the tree that every level folds by.
inline float sum(F x) {
    for (int half = width / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) x.v[i] = x.v[i] + x.v[i + half];
    return x.v[0];
}
inline float highest(F x) {
    for (int half = width / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
    return x.v[0];
}

// Values of type F that the level can keep in registers: how many sums a kernel holds at once.
constexpr int registers = 8;

// Whether the operand is so in all 16 lanes.
inline bool all(M a) {
    bool every = true;
    for (int i = 0; i < width; ++i) every &= a.v[i];
    return every;
}
inline std::uint16_t bf16_bits(float value) {  // to nearest even
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline void store_bf16(std::uint16_t *p, F x) {
    for (int i = 0; i < width; ++i) p[i] = bf16_bits(x.v[i]);
}

inline std::int32_t sum_int(I a) {  // of all 16 lanes
    std::int32_t total = 0;
    for (int i = 0; i < width; ++i) total += a.v[i];
    return total;
}
template <int n> inline I shift_right(I a) {  // the sign comes in from the left
    return lanes<I>([&](int i) { return a.v[i] >> n; });
}
inline void store_low_bytes(std::int8_t *p, I a) {  // the lowest 8 bits of each lane
    for (int i = 0; i < width; ++i) p[i] = static_cast<std::int8_t>(a.v[i] & 0xff);
}

}  // namespace forwardpass::portable
