// The portable level: plain C++, on every machine.

#include "kernels.h"

#include <cstring>

#include "bytes_portable.h"
#include "vec_portable.h"

namespace forwardpass {
namespace portable {

#include "math.inc"
#include "rows.inc"
#include "attention.inc"
#include "formats.inc"
#include "decode.inc"
#include "products.inc"

static constexpr Kernels make() {
    Kernels k{};
    k.level = "portable";
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

}  // namespace portable

const Kernels *kernels_portable() { return &portable::table; }

}  // namespace forwardpass
