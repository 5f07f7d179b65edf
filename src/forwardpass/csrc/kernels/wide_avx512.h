// Eight lanes of float64 in one 512-bit register. See wide_portable.h for what each one means.
#pragma once

#include "vec_avx512.h"

namespace forwardpass::avx512 {

using D = __m512d;

inline D wide_set(double x) { return _mm512_set1_pd(x); }
inline D wide_load(const double *p) { return _mm512_loadu_pd(p); }
inline void wide_store(double *p, D x) { _mm512_storeu_pd(p, x); }
inline D wide_low(F x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
inline D wide_high(F x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
inline D wide_add(D a, D b) { return _mm512_add_pd(a, b); }
inline D wide_sub(D a, D b) { return _mm512_sub_pd(a, b); }
inline D wide_mul(D a, D b) { return _mm512_mul_pd(a, b); }
inline D wide_div(D a, D b) { return _mm512_div_pd(a, b); }
inline D wide_mul_add(D a, D b, D c) { return _mm512_fmadd_pd(a, b, c); }
inline F mul_add(F a, F b, F c) { return fma(a, b, c); }
inline D wide_max(D a, D b) { return _mm512_max_pd(a, b); }
inline D wide_add_where(unsigned bits, D sum, D x) {
    return _mm512_mask_add_pd(sum, static_cast<__mmask8>(bits), sum, x);
}
inline D wide_power(D x) {
    return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(x), 52));
}
inline double wide_sum(D x) {
    double v[8], total = 0;
    wide_store(v, x);
    for (const double lane : v) total += lane;
    return total;
}

inline unsigned at_least(F x, F from) { return _mm512_cmp_ps_mask(x, from, _CMP_GE_OQ); }
inline F add_unless(unsigned bits, F sum, F x) {
    return _mm512_mask_add_ps(sum, static_cast<M>(~bits), sum, x);
}
inline F only(unsigned bits, F x, F other) {
    return _mm512_mask_blend_ps(static_cast<M>(bits), other, x);
}
inline unsigned nonzero_bytes(const std::uint8_t *p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    return _mm_test_epi8_mask(bytes, bytes);
}
inline void squeeze(unsigned bits, F x, I ids, float *values, std::int32_t *numbers) {
    const M lanes = static_cast<M>(bits);
    _mm512_storeu_ps(values, _mm512_maskz_compress_ps(lanes, x));
    _mm512_storeu_si512(numbers, _mm512_maskz_compress_epi32(lanes, ids));
}

}  // namespace forwardpass::avx512
