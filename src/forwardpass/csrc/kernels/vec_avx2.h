// Sixteen lanes in two 256-bit registers. See vec_portable.h for what each operation means.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace forwardpass::avx2 {

struct F { __m256 a, b; };
struct I { __m256i a, b; };
struct M { __m256 a, b; };  // all bits of a lane, or none

inline F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float *p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
inline M first(int n) {
    const __m256i counts = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), counts)),
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), counts))};
}
inline F load_first(const float *p, int n) {
    const M m = first(n);
    return {_mm256_maskload_ps(p, _mm256_castps_si256(m.a)),
            _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
inline void store_first(float *p, F x, int n) {
    const M m = first(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}
inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F sqrt(F x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
inline F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F abs(F x) {
    const __m256 rest = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return {_mm256_and_ps(x.a, rest), _mm256_and_ps(x.b, rest)};
}
inline M less(F x, F y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
inline F select(M m, F x, F y) {
    return {_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}

inline I set_int(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I load_int(const std::int32_t *p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p + 8))};
}
inline void store_int(std::int32_t *p, I x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p + 8), x.b);
}
inline I add_int(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I sub_int(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline I mul_int(I x, I y) {
    return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
}
template <int n> inline I shift_left(I x) {
    return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
inline F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline F bits_to_float(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline I float_to_bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }

inline F load_f16(const std::uint16_t *p) {
    const __m128i *q = reinterpret_cast<const __m128i *>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
inline void store_f16(std::uint16_t *p, F x) {
    constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    __m128i *q = reinterpret_cast<__m128i *>(p);
    _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, nearest));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, nearest));
}
inline F load_bf16(const std::uint16_t *p) {
    const __m128i *q = reinterpret_cast<const __m128i *>(p);
    const __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(q));
    const __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}
inline I load_bytes(const std::uint8_t *p) {
    return {_mm256_cvtepu8_epi32(_mm_loadu_si64(p)),
            _mm256_cvtepu8_epi32(_mm_loadu_si64(p + 8))};
}
inline I load_signed_bytes(const std::int8_t *p) {
    return {_mm256_cvtepi8_epi32(_mm_loadu_si64(p)),
            _mm256_cvtepi8_epi32(_mm_loadu_si64(p + 8))};
}

// Lane i with lane i + 8, then + 4, + 2, + 1: the tree that every level folds by.
inline float sum(F x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float highest(F x) {
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

constexpr int registers = 8;

inline bool all(M m) { return _mm256_movemask_ps(_mm256_and_ps(m.a, m.b)) == 0xff; }
inline __m256i bf16_bits(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, unordered), 16);
}
inline void store_bf16(std::uint16_t *p, F x) {
    const __m256i mixed = _mm256_packus_epi32(bf16_bits(x.a), bf16_bits(x.b));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm256_permute4x64_epi64(mixed, 0xd8));
}

inline std::int32_t sum_int(I x) {
    const __m256i eight = _mm256_add_epi32(x.a, x.b);
    const __m128i four =
        _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
template <int n> inline I shift_right(I x) {
    return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
}
inline void store_low_bytes(std::int8_t *p, I x) {
    const __m256i low = _mm256_set1_epi32(0xff);
    const __m256i words =
        _mm256_packus_epi32(_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low));
    const __m256i in_order = _mm256_permute4x64_epi64(words, 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p),
                     _mm_packus_epi16(_mm256_castsi256_si128(in_order),
                                      _mm256_extracti128_si256(in_order, 1)));
}

}  // namespace forwardpass::avx2
