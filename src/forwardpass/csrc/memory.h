// Anonymous memory: zeros to begin with, aligned to pages, huge pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace forwardpass
