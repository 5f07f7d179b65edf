// The AMX level: the AVX-512 VNNI level, and products in bf16 tiles for the rows of a prompt. Null
// where the flags lack AMX tiles and bf16, AVX-512 BF16 or VBMI.

#include "kernels.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512BF16__) && \
    defined(__AVX512VBMI__) && defined(__AVX512DQ__)

#include <immintrin.h>

// The same operations on 16 lanes, as functions of this level alone: what these flags make of them
// must not be taken for the AVX-512 level's.
#define avx512 amx
#include "vec_avx512.h"
#undef avx512

namespace forwardpass {
namespace amx {

#include "formats.inc"
#include "kv.inc"
#include "math.inc"
#include "tile_weights.inc"
#include "tiles.inc"
#include "attention_tiles.inc"

static constexpr Tiles tiles{begin,    end,  pack,     weights,
                             products, loop, kv_tiles, attend_tiles};

}  // namespace amx

const Kernels *kernels_amx() {
    if (!kernels_avx512()) return nullptr;
    static const Kernels table = [] {
        Kernels k = *kernels_avx512();
        k.level = "amx";
        k.tiles = &amx::tiles;
        return k;
    }();
    return &table;
}

}  // namespace forwardpass

#else

namespace forwardpass {

const Kernels *kernels_amx() { return nullptr; }

}  // namespace forwardpass

#endif
