#include "kernels/kernels.h"

namespace forwardpass {
namespace {
#include "kernels/formats.inc"
}  // namespace

std::int64_t panel_bytes(Type type, std::int64_t cols) { return bytes_of(layout_of(type), cols); }

}  // namespace forwardpass
