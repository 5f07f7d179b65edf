#include "cache.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace forwardpass {
namespace {

// Steele, Lea and Flood's splitmix64 (OOPSLA 2014, figure 9), as a number from −1 to 1.
float next_random(std::uint64_t &state) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    const std::int64_t top = static_cast<std::int64_t>((z ^ z >> 31) >> 40);
    return static_cast<float>(top - (1 << 23)) * 0x1p-23f;
}

float half_value(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = 0;
    if (exponent == 31) size = fraction ? __builtin_nanf("") : __builtin_inff();
    else if (exponent == 0) size = static_cast<float>(fraction) * 0x1p-24f;
    else {
        const std::uint32_t word = static_cast<std::uint32_t>(exponent + 112) << 23 |
                                   static_cast<std::uint32_t>(fraction) << 13;
        std::memcpy(&size, &word, sizeof size);
    }
    return bits & 0x8000 ? -size : size;
}

float stored_value(KvType type, const std::uint8_t *at) {
    float value;
    if (type == KvType::f32) {
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    if (type == KvType::f16) return half_value(bits);
    const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

}  // namespace

CacheShape::CacheShape(std::vector<StateShape> states, KvType type)
    : states_(std::move(states)), type_(type), begins_{0} {
    for (const StateShape &state : states_) {
        if (state.groups < 1 || state.groups > 4096 || state.width < 8 || state.width > 512 ||
            state.width % 8)
            throw std::invalid_argument(
                "state " + std::to_string(begins_.size() - 1) + ": " +
                std::to_string(state.groups) + " heads of " + std::to_string(state.width) +
                "; heads are from 1 to 4096, their width a multiple of 8 up to 512");
        const std::int64_t head = kv_block * state.width * kv_bytes(type);
        begins_.push_back(begins_.back() + 2 * state.groups * head);
    }
}

std::int64_t CacheShape::offset(int state, int which, std::int64_t head) const {
    const StateShape &shape = states_[static_cast<std::size_t>(state)];
    return begins_[static_cast<std::size_t>(state)] +
           (which * shape.groups + head) * kv_block * shape.width * kv_bytes(type_);
}

bool CacheShape::operator==(const CacheShape &other) const {
    return type_ == other.type_ &&
           std::equal(states_.begin(), states_.end(), other.states_.begin(), other.states_.end(),
                      [](const StateShape &a, const StateShape &b) {
                          return a.groups == b.groups && a.width == b.width;
                      });
}

std::int64_t Cache::nbytes() const {
    return static_cast<std::int64_t>(blocks_.size()) * shape_->block_bytes();
}

void Cache::reserve(std::int64_t tokens) {
    const std::size_t wanted = static_cast<std::size_t>((tokens + kv_block - 1) / kv_block);
    memory_.reserve(wanted);
    blocks_.reserve(wanted);
    while (blocks_.size() < wanted) {
        memory_.emplace_back(static_cast<std::size_t>(shape_->block_bytes()));
        blocks_.push_back(memory_.back().data());
    }
}

std::unique_ptr<Cache> Cache::fork() const {
    auto copy = std::make_unique<Cache>(shape_);
    copy->reserve(length_);
    for (std::size_t i = 0; i < copy->blocks_.size(); ++i)
        std::memcpy(copy->memory_[i].data(), blocks_[i],
                    static_cast<std::size_t>(shape_->block_bytes()));
    copy->length_ = length_;
    return copy;
}

void Cache::fill_random(std::int64_t tokens, std::uint64_t seed, const Kernels &kernels) {
    reserve(tokens);
    float key[512], value[512];
    for (std::int64_t position = 0; position < tokens; ++position) {
        std::uint8_t *at = block(position / kv_block);
        for (int s = 0; s < static_cast<int>(shape_->states().size()); ++s) {
            const StateShape &state = shape_->states()[static_cast<std::size_t>(s)];
            for (std::int64_t head = 0; head < state.groups; ++head) {
                for (std::int64_t i = 0; i < state.width; ++i) {
                    key[i] = next_random(seed);
                    value[i] = next_random(seed);
                }
                kernels.kv_write(shape_->type(), key, value, static_cast<int>(state.width),
                                 static_cast<int>(position % kv_block),
                                 at + shape_->offset(s, 0, head), at + shape_->offset(s, 1, head));
            }
        }
    }
    length_ = tokens;
}

void Cache::read(int state, int which, std::int64_t head, std::int64_t position,
                 float *out) const {
    const std::int64_t e = shape_->states()[static_cast<std::size_t>(state)].width;
    const std::int64_t slot = position % kv_block, size = kv_bytes(shape_->type());
    const std::uint8_t *at = blocks_[static_cast<std::size_t>(position / kv_block)] +
                             shape_->offset(state, which, head);
    for (std::int64_t i = 0; i < e; ++i) {
        const std::int64_t element =
            which == 0 ? (slot / 16 * e + i) * 16 + slot % 16 : slot * e + i;
        out[i] = stored_value(shape_->type(), at + element * size);
    }
}

}  // namespace forwardpass
