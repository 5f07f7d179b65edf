// What this processor and operating system let a program use. Knows nothing of Python.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace forwardpass {

// Whether the Linux kernel lets this process use AMX tile registers. They are off until a
// process asks for them, so `on_request` is what a process sees before it first did.
enum class TilePermission { unsupported, on_request, granted };

struct Cpu {
    std::string vendor;  // "GenuineIntel"; empty off x86
    std::string brand;
    // Every feature that is looked for, with whether the processor has it *and* the operating
    // system saves the registers that it needs.
    std::vector<std::pair<const char *, bool>> features;
    TilePermission tile_permission = TilePermission::unsupported;
    // Bytes, as one core sees them; 0 where the processor does not say.
    std::uint64_t l1d = 0, l2 = 0, l3 = 0;
};

Cpu describe_cpu();

// Asks the kernel for the tile registers, for all threads of this process, where it has not yet. The
// kernel refuses where a thread's stack for signals is too small to save them.
bool may_use_tiles(const Cpu &cpu);

}  // namespace forwardpass
