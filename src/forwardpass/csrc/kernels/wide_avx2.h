// Eight lanes of float64 in two 256-bit registers. See wide_portable.h for what each one means.
#pragma once

#include <bit>

#include "vec_avx2.h"

namespace forwardpass::avx2 {

struct D { __m256d a, b; };

inline D wide_set(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
inline D wide_load(const double *p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
inline void wide_store(double *p, D x) {
    _mm256_storeu_pd(p, x.a);
    _mm256_storeu_pd(p + 4, x.b);
}
inline D wide_of(__m256 x) {
    return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)),
            _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}
inline D wide_low(F x) { return wide_of(x.a); }
inline D wide_high(F x) { return wide_of(x.b); }
inline D wide_add(D x, D y) { return {_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b)}; }
inline D wide_sub(D x, D y) { return {_mm256_sub_pd(x.a, y.a), _mm256_sub_pd(x.b, y.b)}; }
inline D wide_mul(D x, D y) { return {_mm256_mul_pd(x.a, y.a), _mm256_mul_pd(x.b, y.b)}; }
inline D wide_div(D x, D y) { return {_mm256_div_pd(x.a, y.a), _mm256_div_pd(x.b, y.b)}; }
inline D wide_mul_add(D x, D y, D z) {
    return {_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b)};
}
inline F mul_add(F x, F y, F z) { return fma(x, y, z); }
inline D wide_max(D x, D y) { return {_mm256_max_pd(x.a, y.a), _mm256_max_pd(x.b, y.b)}; }
inline D wide_add_where(unsigned bits, D sum, D x) {
    const __m256i each = _mm256_setr_epi64x(1, 2, 4, 8);
    const __m256i held = _mm256_set1_epi64x(bits), upper = _mm256_srli_epi64(held, 4);
    const auto of = [&](__m256i lanes, __m256d part) {
        const __m256i is = _mm256_cmpeq_epi64(_mm256_and_si256(lanes, each), each);
        return _mm256_and_pd(_mm256_castsi256_pd(is), part);
    };
    return {_mm256_add_pd(sum.a, of(held, x.a)), _mm256_add_pd(sum.b, of(upper, x.b))};
}
inline D wide_power(D x) {
    return {_mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(x.a), 52)),
            _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(x.b), 52))};
}
inline double wide_sum(D x) {
    double v[8], total = 0;
    wide_store(v, x);
    for (const double lane : v) total += lane;
    return total;
}

inline unsigned at_least(F x, F from) {
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.a, from.a, _CMP_GE_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(x.b, from.b, _CMP_GE_OQ));
    return static_cast<unsigned>(low | high << 8);
}
inline __m256 lanes_of(unsigned bits) {  // all bits of the lanes whose bit is 1, of eight
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i held = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), each);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(held, each));
}
inline F add_unless(unsigned bits, F sum, F x) {
    if (bits == 0) return add(sum, x);
    return {_mm256_add_ps(sum.a, _mm256_andnot_ps(lanes_of(bits), x.a)),
            _mm256_add_ps(sum.b, _mm256_andnot_ps(lanes_of(bits >> 8), x.b))};
}
inline F only(unsigned bits, F x, F other) {
    return {_mm256_blendv_ps(other.a, x.a, lanes_of(bits)),
            _mm256_blendv_ps(other.b, x.b, lanes_of(bits >> 8))};
}
inline unsigned nonzero_bytes(const std::uint8_t *p) {
    const __m128i zeros = _mm_cmpeq_epi8(
        _mm_loadu_si128(reinterpret_cast<const __m128i *>(p)), _mm_setzero_si128());
    return ~static_cast<unsigned>(_mm_movemask_epi8(zeros)) & 0xffff;
}
inline void squeeze(unsigned bits, F x, I ids, float *values, std::int32_t *numbers) {
    float v[16];
    std::int32_t n[16];
    store(v, x);
    store_int(n, ids);
    for (; bits != 0; bits &= bits - 1) {
        const int lane = std::countr_zero(bits);
        *values++ = v[lane];
        *numbers++ = n[lane];
    }
}

}  // namespace forwardpass::avx2
