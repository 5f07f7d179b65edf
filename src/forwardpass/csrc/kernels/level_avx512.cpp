// The AVX-512 VNNI level: AVX-512 F, DQ, BW, VL and VNNI. Null where the flags lack them.

#include "kernels.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && \
    defined(__AVX512VL__) && defined(__AVX512VNNI__)

#include <bit>
#include <cstring>

#include "bytes_avx512.h"
#include "vec_avx512.h"
#include "wide_avx512.h"

namespace forwardpass {
namespace avx512 {

#include "level.inc"

static constexpr Kernels table = make("avx512-vnni");

}  // namespace avx512

const Kernels *kernels_avx512() { return &avx512::table; }

}  // namespace forwardpass

#else

namespace forwardpass {

const Kernels *kernels_avx512() { return nullptr; }

}  // namespace forwardpass

#endif
