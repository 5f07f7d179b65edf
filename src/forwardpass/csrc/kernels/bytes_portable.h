// Products of bytes in plain C++, and what every level means by them.
//
// A Quad is 4 inputs of the rows of one part as unsigned bytes, ready to be multiplied; a level has
// `parts` parts of 16 / parts rows. An Acc is a sum of products for each row of a part: exact,
// since 32 · 255 · 32,639 < 2^31. Activations are in the order that the level's XBlock has.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "vec_portable.h"

namespace forwardpass::portable {

constexpr bool planes = false;
constexpr int parts = 1;
constexpr int rows_of_all_parts = 1;
constexpr int most_rows = 1;  // rows of activations at a time; other levels have more registers
constexpr int most_float_rows = 1;

struct Quad { std::uint8_t q[64]; };
struct Acc { std::int32_t sum[16]; };

template <class Op> inline Quad quad(Op op) {
    Quad out;
    for (int i = 0; i < 64; ++i) out.q[i] = static_cast<std::uint8_t>(op(i));
    return out;
}

inline const XBlock *apart(const XBlock *x) { return x; }

// 64 bytes as they are.
inline Quad byte_quad(const std::uint8_t *p, int) {
    return quad([=](int i) { return p[i]; });
}
inline void nibble_quads(const std::uint8_t *p, int, Quad &low, Quad &high) {
    low = quad([=](int i) { return p[i] & 15; });
    high = quad([=](int i) { return p[i] >> 4; });
}
// Register j of the nibbles at p, with bits j and j + 4 of the fifth bits.
template <int j>
inline void fifth_quads(const std::uint8_t *fifths, const std::uint8_t *p, int, Quad &low,
                        Quad &high) {
    low = quad([=](int i) { return (p[i] & 15) | (fifths[i] >> j & 1) << 4; });
    high = quad([=](int i) { return p[i] >> 4 | (fifths[i] >> (j + 4) & 1) << 4; });
}
inline int six_fourth(const std::uint8_t *p, int i) {
    return (p[i] >> 2 & 48) | (p[64 + i] >> 4 & 12) | p[128 + i] >> 6;
}
// Four registers out of three.
inline void six_quads(const std::uint8_t *p, int, Quad w[4]) {
    for (int n = 0; n < 3; ++n) w[n] = quad([=](int i) { return p[64 * n + i] & 63; });
    w[3] = quad([=](int i) { return six_fourth(p, i); });
}
// The same into 256 bytes of memory.
inline void six_bytes(const std::uint8_t *p, std::uint8_t *to) {
    Quad w[4];
    six_quads(p, 0, w);
    std::memcpy(to, w, 256);
}

inline Acc start(std::int32_t sum) {
    Acc acc;
    for (int i = 0; i < 16; ++i) acc.sum[i] = sum;
    return acc;
}
// acc + w · the four activations number `quad` of the block.
inline Acc dot(Acc acc, const Quad &w, const XBlock &x, int quad) {
    std::int16_t v[4];
    std::memcpy(v, x.q + 8 * quad, sizeof v);
    const std::int32_t x0 = v[0], x2 = v[1], x1 = v[2], x3 = v[3];
    for (int i = 0; i < 16; ++i)
        acc.sum[i] += w.q[4 * i] * x0 + w.q[4 * i + 1] * x1 + w.q[4 * i + 2] * x2 +
                      w.q[4 * i + 3] * x3;
    return acc;
}
// The sums of a part into their lanes.
inline void finish(I &sums, int, const Acc &acc) { std::memcpy(sums.v, acc.sum, sizeof sums.v); }

// Two inputs of 16 rows: words whose low half is the first.
inline void bf16_pair(const std::uint8_t *p, F &even, F &odd) {
    for (int i = 0; i < 16; ++i) {
        std::uint16_t pair[2];
        std::memcpy(pair, p + 4 * i, sizeof pair);
        even.v[i] = bf16_value(pair[0]);
        odd.v[i] = bf16_value(pair[1]);
    }
}
inline float scalar_f16(std::uint16_t bits) { return f16_value(bits); }
inline float scalar_bf16(std::uint16_t bits) { return bf16_value(bits); }

}  // namespace forwardpass::portable
