// What this machine can do at best, measured.
#pragma once

#include <cstdint>

namespace forwardpass {

// Bytes a second that `threads` threads read from memory with plain vector loads, each its own part
// of `bytes` bytes in huge pages: the best of `repetitions`.
double read_rate(std::int64_t bytes, int threads, int repetitions);

}  // namespace forwardpass
