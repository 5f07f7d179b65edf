// The AVX2 level: also needs FMA and F16C. Null where the build's flags lack them (off x86).

#include "kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <bit>
#include <cstring>

#include "bytes_avx2.h"
#include "vec_avx2.h"
#include "wide_avx2.h"

namespace forwardpass {
namespace avx2 {

#include "level.inc"

static constexpr Kernels table = make("avx2");

}  // namespace avx2

const Kernels *kernels_avx2() { return &avx2::table; }

}  // namespace forwardpass

#else

namespace forwardpass {

const Kernels *kernels_avx2() { return nullptr; }

}  // namespace forwardpass

#endif
