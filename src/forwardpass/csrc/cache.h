// The keys and values of one sequence: blocks of 64 positions, each with all layers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "memory.h"

namespace forwardpass {

// What a layer keeps: keys and values of `groups` heads of `width`.
struct StateShape {
    std::int64_t groups, width;
};

// Where a block has what. A state has the keys of all its heads, then their values.
class CacheShape {
  public:
    CacheShape(std::vector<StateShape> states, KvType type);  // throws std::invalid_argument

    KvType type() const { return type_; }
    const std::vector<StateShape> &states() const { return states_; }
    std::int64_t block_bytes() const { return begins_.back(); }
    // Bytes into a block; `which`: 0 keys, 1 values.
    std::int64_t offset(int state, int which, std::int64_t head) const;
    bool operator==(const CacheShape &other) const;

  private:
    std::vector<StateShape> states_;
    KvType type_;
    std::vector<std::int64_t> begins_;  // of each state, and the end
};

// Blocks are zeros at first and stay where they are. Not for several threads at once, except that
// the threads of a pass write and read different positions.
class Cache {
  public:
    explicit Cache(std::shared_ptr<const CacheShape> shape) : shape_(std::move(shape)) {}

    const CacheShape &shape() const { return *shape_; }
    std::int64_t length() const { return length_; }
    std::int64_t room() const { return static_cast<std::int64_t>(blocks_.size()) * kv_block; }
    std::int64_t nbytes() const;
    void reserve(std::int64_t tokens);       // room for that many in all; std::bad_alloc
    void set_length(std::int64_t length) { length_ = length; }  // within the room
    std::unique_ptr<Cache> fork() const;     // a copy
    // Positions 0 … tokens − 1 get values from −1 to 1 that depend on the seed; length = tokens.
    void fill_random(std::int64_t tokens, std::uint64_t seed, const Kernels &kernels);
    // One key (which = 0) or value (1) of one head; room for `width` floats.
    void read(int state, int which, std::int64_t head, std::int64_t position, float *out) const;
    const std::uint8_t *const *blocks() const { return blocks_.data(); }
    std::uint8_t *block(std::int64_t i) { return memory_[static_cast<std::size_t>(i)].data(); }

  private:
    std::shared_ptr<const CacheShape> shape_;
    std::vector<Memory> memory_;
    std::vector<const std::uint8_t *> blocks_;
    std::int64_t length_ = 0;
};

}  // namespace forwardpass
