// The AVX2 level: also needs FMA and F16C. Null where the build's flags lack them (off x86).

#include "kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <cstring>

#include "bytes_avx2.h"
#include "vec_avx2.h"

namespace forwardpass {
namespace avx2 {

#include "math.inc"
#include "rows.inc"
#include "attention.inc"
#include "formats.inc"
#include "decode.inc"
#include "products.inc"

static constexpr Kernels make() {
    Kernels k{};
    k.level = "avx2";
    k.planes = planes;
    k.add = add;
    k.scale = scale;
    k.rms_norm = rms_norm;
    k.layer_norm = layer_norm;
    k.relu = relu;
    k.gelu = gelu;
    k.gelu_erf = gelu_erf;
    k.silu_multiply = silu_multiply;
    k.gelu_multiply = gelu_multiply;
    k.softcap = softcap;
    k.rope = rope;
    k.quantize = quantize;
    k.finite = finite;
    k.kv_write = kv_write;
    k.attend = attend;
    k.combine = combine;
    k.decode_row = decode_row;
    k.products = products;
    return k;
}

static constexpr Kernels table = make();

}  // namespace avx2

const Kernels *kernels_avx2() { return &avx2::table; }

}  // namespace forwardpass

#else

namespace forwardpass {

const Kernels *kernels_avx2() { return nullptr; }

}  // namespace forwardpass

#endif
