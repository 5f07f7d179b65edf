// Anonymous memory: zeros to begin with, aligned to pages, huge pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace forwardpass {

class Memory {
  public:
    Memory() = default;
    explicit Memory(std::size_t bytes);  // throws std::bad_alloc
    Memory(Memory &&other) noexcept;
    Memory &operator=(Memory &&other) noexcept;
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory();

    std::uint8_t *data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    std::uint8_t *data_ = nullptr;
    std::size_t size_ = 0;
};

// Takes the pages of a file that is mapped read-only out of memory, where the system can; they are
// read again when they are asked for. Never for other memory, which would lose what it holds.
void forget_pages(const std::uint8_t *from, std::int64_t bytes);

// Memory for many things that live as long as it does, one behind the other in large blocks: what is
// smaller than a huge page gets huge pages too, and a processor that reads one after another goes on
// reading ahead.
class Arena {
  public:
    std::uint8_t *take(std::size_t bytes);  // aligned to 64 bytes; throws std::bad_alloc

  private:
    std::mutex mutex_;
    std::vector<Memory> blocks_;
    std::size_t taken_ = 0;  // of the last block
};

}  // namespace forwardpass
