// The AVX-512 VNNI level: AVX-512 F, DQ, BW, VL and VNNI. Null where the flags lack them.

#include "kernels.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && \
    defined(__AVX512VL__) && defined(__AVX512VNNI__)

#include <cstring>

#include "bytes_avx512.h"
#include "vec_avx512.h"

namespace forwardpass {
namespace avx512 {

#include "math.inc"
#include "rows.inc"
#include "attention.inc"
#include "formats.inc"
#include "decode.inc"
#include "products.inc"

static constexpr Kernels make() {
    Kernels k{};
    k.level = "avx512-vnni";
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

}  // namespace avx512

const Kernels *kernels_avx512() { return &avx512::table; }

}  // namespace forwardpass

#else

namespace forwardpass {

const Kernels *kernels_avx512() { return nullptr; }

}  // namespace forwardpass

#endif
