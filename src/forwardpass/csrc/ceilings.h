// What this machine can do at best, measured.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace forwardpass {

// Bytes a second that `threads` threads read from memory with plain vector loads, each its own part
// of `bytes` bytes in huge pages: the best of `repetitions`.
double read_rate(std::int64_t bytes, int threads, int repetitions);

// FLOP a second that `threads` threads reach together in about `seconds` of products of 2 × 2 tiles
// whose operands lie in the first cache.
double tile_rate(const Tiles &tiles, int threads, double seconds);

}  // namespace forwardpass
