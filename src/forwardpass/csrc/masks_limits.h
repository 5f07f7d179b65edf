// What the tables of masks count in, and how far they go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace forwardpass {

constexpr int dead = -1, unknown = -2;   // in rows
constexpr int most_cost = 1 << 30;       // costs are counted up to here
constexpr int no_cost = most_cost + 1;   // of what cannot be
constexpr std::int64_t most_of_each = 4'000'000;
constexpr std::int64_t row_bytes = 256 * sizeof(std::int32_t);
constexpr std::int64_t key_bytes = 96;  // of a place in a hash table, about

// Costs are far below what an int holds, and stay there.
inline int sum_of_costs(int a, int b) { return std::min(a + b, most_cost); }

inline int checked_cost(std::int64_t cost, const char *what) {
    if (cost < 0)
        throw std::invalid_argument(std::string(what) + ": a number of tokens from 0 up is wanted");
    return static_cast<int>(std::min<std::int64_t>(cost, most_cost));
}

inline void check_room(std::size_t count, const char *what) {
    if (static_cast<std::int64_t>(count) >= most_of_each)
        throw std::runtime_error("the tables of this grammar are full: it has " +
                                 std::to_string(most_of_each) + " " + what);
}

// Where each of 256 bytes leads: nobody knows yet.
inline std::unique_ptr<std::int32_t[]> new_row() {
    std::unique_ptr<std::int32_t[]> row(new std::int32_t[256]);
    std::fill_n(row.get(), 256, unknown);
    return row;
}

// Bytes of memory, which may not become more than `most`.
struct Budget {
    std::int64_t used = 0, most = 0;
    void take(std::int64_t bytes) {
        if (bytes > most - used)
            throw std::runtime_error("the tables of this grammar are full: they may take " +
                                     std::to_string(most) + " bytes");
        used += bytes;
    }
};

}  // namespace forwardpass
