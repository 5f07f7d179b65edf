// Products of bytes at the AVX2 level: 8 rows at a time (two parts), activations as int16 in the
// order 0 2 1 3 of each four, through VPMADDWD. See bytes_portable.h for what is meant.
#pragma once

#include "kernels.h"
#include "vec_avx2.h"

namespace forwardpass::avx2 {

constexpr bool planes = false;
constexpr int parts = 2;
constexpr int rows_of_all_parts = 2;
constexpr int most_rows = 8;
constexpr int most_float_rows = 2;

// Inputs 0 and 2 of 8 rows as int16, and inputs 1 and 3.
struct Quad { __m256i even, odd; };
struct Acc { __m256i sum; };

inline __m256i load_32(const std::uint8_t *p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
}
inline __m256i mask_32(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
inline __m256i mask_16(int low) { return _mm256_set1_epi16(static_cast<short>(low)); }

// The same, as far as the compiler can tell another value: keeps it from merging and moving work
// across this place, which costs more in spilled registers than it saves.
inline __m256i apart(__m256i x) {
    __asm__("" : "+x"(x));
    return x;
}
inline const XBlock *apart(const XBlock *x) {
    __asm__("" : "+r"(x));
    return x;
}

inline Quad split(__m256i bytes) {
    return {_mm256_and_si256(bytes, mask_16(255)), _mm256_srli_epi16(bytes, 8)};
}
inline Quad byte_quad(const std::uint8_t *p, int part) { return split(load_32(p + 32 * part)); }
inline void nibble_quads(const std::uint8_t *p, int part, Quad &low, Quad &high) {
    const __m256i all = load_32(p + 32 * part), mask = mask_16(15);
    low.even = _mm256_and_si256(all, mask);
    low.odd = _mm256_and_si256(_mm256_srli_epi16(all, 8), mask);
    high.even = _mm256_and_si256(_mm256_srli_epi16(all, 4), mask);
    high.odd = _mm256_srli_epi16(all, 12);
}
template <int j>
inline void fifth_quads(const std::uint8_t *fifths, const std::uint8_t *p, int part, Quad &low,
                        Quad &high) {
    const __m256i bits = load_32(fifths + 32 * part), all = load_32(p + 32 * part);
    const __m256i fifth = mask_32(16), mask = mask_32(15);
    const __m256i low_bit = _mm256_and_si256(_mm256_slli_epi16(bits, 4 - j), fifth);
    const __m256i high_bit = _mm256_and_si256(_mm256_srli_epi16(bits, j), fifth);
    low = split(_mm256_or_si256(_mm256_and_si256(all, mask), low_bit));
    high = split(_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(all, 4), mask), high_bit));
}
inline __m256i six_fourth(__m256i a, __m256i b, __m256i c) {
    const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(a, 2), mask_32(48));
    const __m256i middle = _mm256_and_si256(_mm256_srli_epi16(b, 4), mask_32(12));
    const __m256i lower = _mm256_and_si256(_mm256_srli_epi16(c, 6), mask_32(3));
    return _mm256_or_si256(_mm256_or_si256(upper, middle), lower);
}
inline void six_quads(const std::uint8_t *p, int part, Quad w[4]) {
    const __m256i a = load_32(p + 32 * part), b = load_32(p + 64 + 32 * part);
    const __m256i c = load_32(p + 128 + 32 * part), six = mask_32(63);
    w[0] = split(_mm256_and_si256(a, six));
    w[1] = split(_mm256_and_si256(b, six));
    w[2] = split(_mm256_and_si256(c, six));
    w[3] = split(six_fourth(a, b, c));
}
inline void six_bytes(const std::uint8_t *p, std::uint8_t *to) {
    for (int at = 0; at < 64; at += 32) {
        const __m256i a = load_32(p + at), b = load_32(p + 64 + at), c = load_32(p + 128 + at);
        const __m256i six = mask_32(63);
        __m256i *out = reinterpret_cast<__m256i *>(to + at);
        _mm256_storeu_si256(out, _mm256_and_si256(a, six));
        _mm256_storeu_si256(out + 2, _mm256_and_si256(b, six));
        _mm256_storeu_si256(out + 4, _mm256_and_si256(c, six));
        _mm256_storeu_si256(out + 6, six_fourth(a, b, c));
    }
}

inline Acc start(std::int32_t sum) { return {_mm256_set1_epi32(sum)}; }
inline Acc dot(Acc acc, Quad w, const XBlock &x, int quad) {
    std::int32_t even, odd;
    __builtin_memcpy(&even, x.q + 8 * quad, 4);
    __builtin_memcpy(&odd, x.q + 8 * quad + 4, 4);
    const __m256i a = _mm256_madd_epi16(w.even, _mm256_set1_epi32(even));
    const __m256i b = _mm256_madd_epi16(w.odd, _mm256_set1_epi32(odd));
    return {apart(_mm256_add_epi32(_mm256_add_epi32(acc.sum, a), b))};
}
inline void finish(I &sums, int part, Acc acc) { (part ? sums.b : sums.a) = acc.sum; }

inline void bf16_pair(const std::uint8_t *p, F &even, F &odd) {
    const __m256i a = load_32(p), b = load_32(p + 32), upper = _mm256_set1_epi32(~0xffff);
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(a, upper)),
           _mm256_castsi256_ps(_mm256_and_si256(b, upper))};
}
inline float scalar_f16(std::uint16_t bits) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
inline float scalar_bf16(std::uint16_t bits) {
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtsi32_si128(bits), 16)));
}

}  // namespace forwardpass::avx2
