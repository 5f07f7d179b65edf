// Reads cpuid, xgetbv and the kernel's answer about AMX. Off x86 every feature is absent.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (CPUID), volume 1
// section 13.3 (XCR0); AMD64 Architecture Programmer's Manual, volume 3, appendix E (8000_001Dh);
// Linux, Documentation/arch/x86/xstate.rst.

#include "cpu.h"

#if defined(__x86_64__) || defined(_M_X64)
#define FORWARDPASS_X86 1
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

#if defined(FORWARDPASS_X86) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace forwardpass {
namespace {

#if defined(FORWARDPASS_X86)

struct Registers {
    std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// One leaf, or zeros where the processor does not have it.
Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
    Registers r;
#if defined(_MSC_VER)
    int out[4];
    __cpuidex(out, static_cast<int>(leaf & 0x80000000u), 0);
    if (static_cast<std::uint32_t>(out[0]) < leaf) return r;
    __cpuidex(out, static_cast<int>(leaf), static_cast<int>(subleaf));
    r = {static_cast<std::uint32_t>(out[0]), static_cast<std::uint32_t>(out[1]),
         static_cast<std::uint32_t>(out[2]), static_cast<std::uint32_t>(out[3])};
#else
    if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
#endif
    return r;
}

// XCR0: which register states the operating system saves on a task switch.
std::uint64_t saved_states() {
    if (!(cpuid(1).ecx >> 27 & 1)) return 0;  // OSXSAVE: without it xgetbv is undefined
#if defined(_MSC_VER)
    return _xgetbv(0);
#else
    // The instruction itself: the intrinsic would ask for a compiler flag.
    std::uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<std::uint64_t>(high) << 32 | low;
#endif
}

void append_text(std::string &text, std::uint32_t four) {
    for (int i = 0; i < 4; ++i) text.push_back(static_cast<char>(four >> (8 * i) & 0xff));
}

std::string vendor() {
    const Registers r = cpuid(0);
    std::string text;
    for (std::uint32_t four : {r.ebx, r.edx, r.ecx}) append_text(text, four);
    return text;
}

std::string brand() {
    if (cpuid(0x80000000u).eax < 0x80000004u) return {};
    std::string text;
    for (std::uint32_t leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
        const Registers r = cpuid(leaf);
        for (std::uint32_t four : {r.eax, r.ebx, r.ecx, r.edx}) append_text(text, four);
    }
    text.resize(text.find('\0') == std::string::npos ? text.size() : text.find('\0'));
    const auto first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
    return first == std::string::npos ? std::string{} : text.substr(first, last - first + 1);
}

// Leaf 4 (Intel) and 8000_001Dh (AMD) share one layout: a cache for each subleaf, type 0 ends.
void read_caches(Cpu &cpu, std::uint32_t leaf) {
    constexpr std::uint32_t instruction_cache = 2, most_caches = 16;
    for (std::uint32_t i = 0; i < most_caches; ++i) {
        const Registers r = cpuid(leaf, i);
        const std::uint32_t type = r.eax & 0x1f, level = r.eax >> 5 & 7;
        if (type == 0) return;
        if (type == instruction_cache) continue;
        const std::uint64_t ways = (r.ebx >> 22) + 1, partitions = (r.ebx >> 12 & 0x3ff) + 1;
        const std::uint64_t line = (r.ebx & 0xfff) + 1, sets = std::uint64_t{r.ecx} + 1;
        const std::uint64_t bytes = ways * partitions * line * sets;
        if (level == 1) cpu.l1d = bytes;
        if (level == 2) cpu.l2 = bytes;
        if (level == 3) cpu.l3 = bytes;
    }
}

#if defined(__linux__)
// ARCH_GET_XCOMP_SUPP, ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM.
constexpr int get_supported = 0x1021, get_permitted = 0x1022, request_permission = 0x1023;
constexpr int tile_state = 18;  // XFEATURE_XTILEDATA
#endif

TilePermission tile_permission() {
#if defined(__linux__)
    constexpr std::uint64_t tile_data = std::uint64_t{1} << tile_state;
    std::uint64_t supported = 0, permitted = 0;
    if (syscall(SYS_arch_prctl, get_supported, &supported) != 0) return TilePermission::unsupported;
    if (!(supported & tile_data)) return TilePermission::unsupported;
    if (syscall(SYS_arch_prctl, get_permitted, &permitted) != 0) return TilePermission::unsupported;
    return permitted & tile_data ? TilePermission::granted : TilePermission::on_request;
#else
    return TilePermission::unsupported;
#endif
}

void read_features(Cpu &cpu) {
    const Registers base = cpuid(1), seven = cpuid(7), seven_one = cpuid(7, 1);
    const std::uint64_t saved = saved_states();
    const auto saves = [saved](std::uint64_t mask) { return (saved & mask) == mask; };
    const bool ymm = saves(0x6), zmm = saves(0xe6), tiles = saves(0x60000);
    const auto bit = [](std::uint32_t word, int i) { return (word >> i & 1) != 0; };

    cpu.features = {
        {"avx2", ymm && bit(seven.ebx, 5)},
        {"fma", ymm && bit(base.ecx, 12)},
        {"f16c", ymm && bit(base.ecx, 29)},
        {"avx512f", zmm && bit(seven.ebx, 16)},
        {"avx512dq", zmm && bit(seven.ebx, 17)},
        {"avx512bw", zmm && bit(seven.ebx, 30)},
        {"avx512vl", zmm && bit(seven.ebx, 31)},
        {"avx512vbmi", zmm && bit(seven.ecx, 1)},
        {"avx512_vnni", zmm && bit(seven.ecx, 11)},
        {"avx512_bf16", zmm && bit(seven_one.eax, 5)},
        {"amx_tile", tiles && bit(seven.edx, 24)},
        {"amx_int8", tiles && bit(seven.edx, 25)},
        {"amx_bf16", tiles && bit(seven.edx, 22)},
    };
    if (tiles && bit(seven.edx, 24)) cpu.tile_permission = tile_permission();
}

#endif

}  // namespace

bool may_use_tiles([[maybe_unused]] const Cpu &cpu) {
#if defined(FORWARDPASS_X86) && defined(__linux__)
    if (cpu.tile_permission == TilePermission::unsupported) return false;
    if (cpu.tile_permission == TilePermission::granted) return true;
    syscall(SYS_arch_prctl, request_permission, tile_state);
    return tile_permission() == TilePermission::granted;
#else
    return false;
#endif
}

Cpu describe_cpu() {
    Cpu cpu;
#if defined(FORWARDPASS_X86)
    cpu.vendor = vendor();
    cpu.brand = brand();
    read_features(cpu);
    read_caches(cpu, cpu.vendor == "AuthenticAMD" ? 0x8000001du : 4u);
#endif
    return cpu;
}

}  // namespace forwardpass
