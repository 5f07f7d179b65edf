// Products of bytes at the AVX-512 VNNI level: 16 rows in a register, activations as two planes of
// int8 (q = 256 · high + low), each through VPDPBUSD. See bytes_portable.h for what is meant.
#pragma once

#include "kernels.h"
#include "vec_avx512.h"

namespace forwardpass::avx512 {

constexpr bool planes = true;
constexpr int parts = 1;
constexpr int rows_of_all_parts = 8;
constexpr int most_rows = 8;
constexpr int most_float_rows = 4;

struct Quad { __m512i q; };
struct Acc { __m512i low, high; };

inline __m512i load_64(const std::uint8_t *p) { return _mm512_loadu_si512(p); }
inline __m512i mask_64(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }

// The same, as far as the compiler can tell another value.
inline __m512i apart(__m512i x) {
    __asm__("" : "+v"(x));
    return x;
}
inline const XBlock *apart(const XBlock *x) { return x; }

inline Quad byte_quad(const std::uint8_t *p, int) { return {load_64(p)}; }
inline void nibble_quads(const std::uint8_t *p, int, Quad &low, Quad &high) {
    const __m512i all = apart(load_64(p)), mask = mask_64(15);  // loaded once, not per use
    low.q = _mm512_and_si512(all, mask);
    high.q = _mm512_and_si512(_mm512_srli_epi16(all, 4), mask);
}
// a | (b & c)
inline __m512i or_and(__m512i a, __m512i b, __m512i c) {
    return _mm512_ternarylogic_epi32(a, b, c, 0xf8);
}
template <int j>
inline void fifth_quads(const std::uint8_t *fifths, const std::uint8_t *p, int part, Quad &low,
                        Quad &high) {
    const __m512i bits = apart(load_64(fifths)), mask = mask_64(16);
    nibble_quads(p, part, low, high);
    low.q = or_and(low.q, _mm512_slli_epi16(bits, 4 - j), mask);
    high.q = or_and(high.q, _mm512_srli_epi16(bits, j), mask);
}
// Bits of x where mask is set, of y elsewhere.
inline __m512i merge(__m512i mask, __m512i x, __m512i y) {
    return _mm512_ternarylogic_epi32(mask, x, y, 0xca);
}
inline void six_registers(const std::uint8_t *p, __m512i out[4]) {
    const __m512i a = apart(load_64(p)), b = apart(load_64(p + 64)), c = apart(load_64(p + 128));
    const __m512i six = mask_64(63);
    const __m512i upper = merge(mask_64(12), _mm512_srli_epi16(b, 4), _mm512_srli_epi16(a, 2));
    out[0] = _mm512_and_si512(a, six);
    out[1] = _mm512_and_si512(b, six);
    out[2] = _mm512_and_si512(c, six);
    out[3] = _mm512_and_si512(merge(mask_64(3), _mm512_srli_epi16(c, 6), upper), six);
}
inline void six_quads(const std::uint8_t *p, int, Quad w[4]) {
    __m512i out[4];
    six_registers(p, out);
    for (int i = 0; i < 4; ++i) w[i].q = out[i];
}
inline void six_bytes(const std::uint8_t *p, std::uint8_t *to) {
    __m512i out[4];
    six_registers(p, out);
    for (int i = 0; i < 4; ++i) _mm512_storeu_si512(to + 64 * i, out[i]);
}

inline Acc start(std::int32_t sum) { return {_mm512_set1_epi32(sum), _mm512_setzero_si512()}; }
inline Acc dot(Acc acc, Quad w, const XBlock &x, int quad) {
    std::int32_t high, low;
    __builtin_memcpy(&high, x.q + 4 * quad, 4);
    __builtin_memcpy(&low, x.q + 32 + 4 * quad, 4);
    return {_mm512_dpbusd_epi32(acc.low, w.q, _mm512_set1_epi32(low)),
            _mm512_dpbusd_epi32(acc.high, w.q, _mm512_set1_epi32(high))};
}
inline void finish(I &sums, int, Acc acc) {
    sums = _mm512_add_epi32(_mm512_slli_epi32(acc.high, 8), acc.low);
}

inline void bf16_pair(const std::uint8_t *p, F &even, F &odd) {
    const __m512i all = load_64(p);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(all, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(all, _mm512_set1_epi32(~0xffff)));
}
inline float scalar_f16(std::uint16_t bits) {
    const __m256i first = _mm256_castsi128_si256(_mm_cvtsi32_si128(bits));
    return _mm512_cvtss_f32(_mm512_cvtph_ps(first));
}
inline float scalar_bf16(std::uint16_t bits) {
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtsi32_si128(bits), 16)));
}

}  // namespace forwardpass::avx512
