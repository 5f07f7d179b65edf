// Which instruction-set levels this machine runs, and the choice of one. Knows nothing of Python.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace forwardpass {

// The levels of this build that this machine can run, best first; the portable one is the last.
// Asks for the tile registers where the processor has them: without them there is no AMX level.
std::vector<const Kernels *> runnable_levels();

// The level of that name. An empty name: what the environment variable FORWARDPASS_ISA names, or
// the best one. Throws std::invalid_argument, with the levels that there are.
const Kernels *choose_level(const std::string &name);

}  // namespace forwardpass
