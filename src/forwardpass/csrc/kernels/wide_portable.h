// What sums over a row of scores need beside vec_portable.h: eight lanes of float64, and comparisons
// as bits. The meaning of each operation at every level.
#pragma once

#include "vec_portable.h"

namespace forwardpass::portable {

struct D { double v[8]; };

template <class Op> inline D wide_lanes(Op op) {
    D out;
    for (int i = 0; i < 8; ++i) out.v[i] = op(i);
    return out;
}

inline D wide_set(double x) { return wide_lanes([=](int) { return x; }); }
inline D wide_load(const double *p) { return wide_lanes([=](int i) { return p[i]; }); }
inline void wide_store(double *p, D x) { std::memcpy(p, x.v, sizeof x.v); }
inline D wide_low(F x) {  // lanes 0 to 7
    return wide_lanes([&](int i) { return static_cast<double>(x.v[i]); });
}
inline D wide_high(F x) {  // lanes 8 to 15
    return wide_lanes([&](int i) { return static_cast<double>(x.v[i + 8]); });
}
inline D wide_add(D a, D b) { return wide_lanes([&](int i) { return a.v[i] + b.v[i]; }); }
inline D wide_sub(D a, D b) { return wide_lanes([&](int i) { return a.v[i] - b.v[i]; }); }
inline D wide_mul(D a, D b) { return wide_lanes([&](int i) { return a.v[i] * b.v[i]; }); }
inline D wide_div(D a, D b) { return wide_lanes([&](int i) { return a.v[i] / b.v[i]; }); }
// a·b + c, rounded once or twice: the levels differ. A library's fma would be slow here.
inline D wide_mul_add(D a, D b, D c) {
    return wide_lanes([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
inline F mul_add(F a, F b, F c) {
    return lanes<F>([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
// The second operand where either is NaN.
inline D wide_max(D a, D b) {
    return wide_lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline D wide_add_where(unsigned bits, D sum, D x) {  // sum + x in the lanes whose bit is 1
    return wide_lanes([&](int i) { return bits >> i & 1 ? sum.v[i] + x.v[i] : sum.v[i]; });
}
inline D wide_power(D x) {  // the float64 whose bits are those of x, 52 to the left
    D out;
    for (int i = 0; i < 8; ++i) {
        std::uint64_t bits;
        std::memcpy(&bits, &x.v[i], sizeof bits);
        bits <<= 52;
        std::memcpy(&out.v[i], &bits, sizeof bits);
    }
    return out;
}
inline double wide_sum(D x) {
    double total = 0;
    for (int i = 0; i < 8; ++i) total += x.v[i];
    return total;
}

// Bit i: whether x >= from in lane i; never where either is NaN.
inline unsigned at_least(F x, F from) {
    unsigned bits = 0;
    for (int i = 0; i < width; ++i) bits |= static_cast<unsigned>(x.v[i] >= from.v[i]) << i;
    return bits;
}
inline F add_unless(unsigned bits, F sum, F x) {  // sum + x in the lanes whose bit is 0
    return lanes<F>([&](int i) { return bits >> i & 1 ? sum.v[i] : sum.v[i] + x.v[i]; });
}
inline F only(unsigned bits, F x, F other) {  // x in the lanes whose bit is 1, else other
    return lanes<F>([&](int i) { return bits >> i & 1 ? x.v[i] : other.v[i]; });
}
inline unsigned nonzero_bytes(const std::uint8_t *p) {  // of 16
    unsigned bits = 0;
    for (int i = 0; i < width; ++i) bits |= static_cast<unsigned>(p[i] != 0) << i;
    return bits;
}
// The lanes whose bit is 1, close together. What stands in the rest of the 16 places is lost.
inline void squeeze(unsigned bits, F x, I ids, float *values, std::int32_t *numbers) {
    for (int i = 0; i < width; ++i)
        if (bits >> i & 1) {
            *values++ = x.v[i];
            *numbers++ = ids.v[i];
        }
}

}  // namespace forwardpass::portable
