// The portable level: plain C++, on every machine.

#include "kernels.h"

#include <bit>
#include <cstring>

#include "bytes_portable.h"
#include "vec_portable.h"
#include "wide_portable.h"

namespace forwardpass {
namespace portable {

#include "level.inc"

static constexpr Kernels table = make("portable");

}  // namespace portable

const Kernels *kernels_portable() { return &portable::table; }

}  // namespace forwardpass
