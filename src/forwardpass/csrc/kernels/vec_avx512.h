// Sixteen lanes in one 512-bit register. See vec_portable.h for what each operation means.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace forwardpass::avx512 {

using F = __m512;       // 16 float32
using I = __m512i;      // 16 int32
using M = __mmask16;    // 16 yes or no

inline F zero() { return _mm512_setzero_ps(); }
inline F set(float x) { return _mm512_set1_ps(x); }
inline F load(const float *p) { return _mm512_loadu_ps(p); }
inline void store(float *p, F x) { _mm512_storeu_ps(p, x); }
inline F load_first(const float *p, int n) {
    return _mm512_maskz_loadu_ps(static_cast<M>((1u << n) - 1), p);
}
inline void store_first(float *p, F x, int n) {
    _mm512_mask_storeu_ps(p, static_cast<M>((1u << n) - 1), x);
}
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F sqrt(F a) { return _mm512_sqrt_ps(a); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline F abs(F a) { return _mm512_abs_ps(a); }
inline M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline F select(M m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }
inline M first(int n) { return static_cast<M>((1u << n) - 1); }

inline I set_int(std::int32_t x) { return _mm512_set1_epi32(x); }
inline I load_int(const std::int32_t *p) { return _mm512_loadu_si512(p); }
inline void store_int(std::int32_t *p, I x) { _mm512_storeu_si512(p, x); }
inline I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
inline I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
inline I mul_int(I a, I b) { return _mm512_mullo_epi32(a, b); }
template <int n> inline I shift_left(I a) { return _mm512_slli_epi32(a, n); }
inline F to_float(I a) { return _mm512_cvtepi32_ps(a); }
inline I to_int(F a) { return _mm512_cvtps_epi32(a); }
inline F bits_to_float(I a) { return _mm512_castsi512_ps(a); }
inline I float_to_bits(F a) { return _mm512_castps_si512(a); }

inline F load_f16(const std::uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
}
inline void store_f16(std::uint16_t *p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline F load_bf16(const std::uint16_t *p) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline I load_bytes(const std::uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}
inline I load_signed_bytes(const std::int8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}

// Lane i with lane i + 8, then + 4, + 2, + 1: the tree that every level folds by.
inline float sum(F x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float highest(F x) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

constexpr int registers = 32;

inline bool all(M m) { return m == 0xffff; }
inline void store_bf16(std::uint16_t *p, F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i all = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(all, 16)));
}

inline std::int32_t sum_int(I x) { return _mm512_reduce_add_epi32(x); }
template <int n> inline I shift_right(I x) { return _mm512_srai_epi32(x, n); }
inline void store_low_bytes(std::int8_t *p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm512_cvtepi32_epi8(x));
}

}  // namespace forwardpass::avx512
