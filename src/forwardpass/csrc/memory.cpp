#include "memory.h"

#include <cstring>
#include <new>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#define FORWARDPASS_MMAP 1
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace forwardpass {
namespace {

constexpr std::size_t page = 4096, huge_page = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

#if defined(FORWARDPASS_MMAP)

std::uint8_t *map(std::size_t bytes) {
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::uint8_t *>(at);
}

// Begins at a multiple of 2 MB where that many fit: an older kernel gives huge pages only so.
std::uint8_t *take(std::size_t bytes) {
    if (bytes < huge_page) return map(bytes);
    std::uint8_t *at = map(bytes + huge_page);
    const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(at) % huge_page);
    const std::size_t skipped = before == huge_page ? 0 : before;
    if (skipped) munmap(at, skipped);
    munmap(at + skipped + bytes, huge_page - skipped);
#if defined(MADV_HUGEPAGE)
    madvise(at + skipped, bytes, MADV_HUGEPAGE);  // advice: without it the memory is only slower
#endif
    return at + skipped;
}

void give_back(std::uint8_t *at, std::size_t bytes) { munmap(at, bytes); }

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

#else

std::uint8_t *take(std::size_t bytes) {
    void *at = ::operator new(bytes, std::align_val_t{page});
    std::memset(at, 0, bytes);
    return static_cast<std::uint8_t *>(at);
}

void give_back(std::uint8_t *at, std::size_t) { ::operator delete(at, std::align_val_t{page}); }

#endif

}  // namespace

void forget_pages(const std::uint8_t *from, std::int64_t bytes) {
#if defined(FORWARDPASS_MMAP) && defined(MADV_DONTNEED)
    const std::size_t before = reinterpret_cast<std::uintptr_t>(from) % page_size();
    madvise(const_cast<std::uint8_t *>(from) - before, static_cast<std::size_t>(bytes) + before,
            MADV_DONTNEED);  // advice: without it there is only more in memory
#else
    static_cast<void>(from);
    static_cast<void>(bytes);
#endif
}

Memory::Memory(std::size_t bytes) {
    if (bytes == 0) return;
    if (bytes > (std::size_t{1} << 62)) throw std::bad_alloc();
    size_ = round_up(bytes, page);
    data_ = take(size_);
}

Memory::Memory(Memory &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory &Memory::operator=(Memory &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

Memory::~Memory() {
    if (data_) give_back(data_, size_);
}

std::uint8_t *Arena::take(std::size_t bytes) {
    // Blocks have room for any table of a small model; what nobody writes to takes no memory.
    constexpr std::size_t block = std::size_t{64} << 20;
    if (bytes > (std::size_t{1} << 62)) throw std::bad_alloc();
    const std::size_t wanted = round_up(bytes, 64);
    const std::lock_guard lock(mutex_);
    if (blocks_.empty() || blocks_.back().size() - taken_ < wanted) {
        blocks_.emplace_back(wanted > block ? wanted : block);
        taken_ = 0;
    }
    taken_ += wanted;
    return blocks_.back().data() + taken_ - wanted;
}

}  // namespace forwardpass
