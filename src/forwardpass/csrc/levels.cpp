#include "levels.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "cpu.h"

namespace forwardpass {
namespace {

bool has(const Cpu &cpu, std::initializer_list<const char *> wanted) {
    return std::all_of(wanted.begin(), wanted.end(), [&](const std::string name) {
        return std::any_of(cpu.features.begin(), cpu.features.end(),
                           [&](const auto &f) { return f.first == name && f.second; });
    });
}

// The AVX2 level is compiled with BMI2 too, which every such processor has had so far.
bool has_bmi2() {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    return __builtin_cpu_supports("bmi2");
#else
    return true;
#endif
}

}  // namespace

std::vector<const Kernels *> runnable_levels() {
    const Cpu cpu = describe_cpu();
    const bool avx2 = has(cpu, {"avx2", "fma", "f16c"}) && has_bmi2();
    const bool avx512 =
        has(cpu, {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"});
    const bool amx = has(cpu, {"avx512_bf16", "avx512vbmi", "amx_tile", "amx_bf16"});
    std::vector<const Kernels *> found;
    if (avx2 && avx512 && amx && kernels_amx() && may_use_tiles(cpu))
        found.push_back(kernels_amx());
    if (avx2 && avx512) found.push_back(kernels_avx512());
    if (avx2) found.push_back(kernels_avx2());
    found.push_back(kernels_portable());
    std::erase(found, nullptr);
    return found;
}

const Kernels *choose_level(const std::string &name) {
    const std::vector<const Kernels *> levels = runnable_levels();
    const char *forced = std::getenv("FORWARDPASS_ISA");
    const bool from_environment = name.empty() && forced && *forced;
    const std::string wanted = from_environment ? forced : name;
    if (wanted.empty()) return levels.front();
    std::string offered;
    for (const Kernels *level : levels) {
        if (wanted == level->level) return level;
        offered += (offered.empty() ? "" : ", ") + std::string(level->level);
    }
    throw std::invalid_argument((from_environment ? "FORWARDPASS_ISA = \"" : "level \"") + wanted +
                                "\": this machine and this build run " + offered);
}

}  // namespace forwardpass
