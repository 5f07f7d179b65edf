#include "ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "memory.h"
#include "pool.h"

namespace forwardpass {
namespace {

constexpr std::int64_t line = 64, unit = 16 * line;

// One cache line, in as few loads as the compiler may use.
typedef std::uint64_t Vector __attribute__((vector_size(64)));

struct Reading {
    const std::uint8_t *data;
    std::int64_t units;
    int threads;
    std::uint64_t sums[1024];  // so that no load can be left out
};

void read_part(void *context, int thread) {
    Reading &reading = *static_cast<Reading *>(context);
    const std::int64_t first = reading.units * thread / reading.threads;
    const std::int64_t last = reading.units * (thread + 1) / reading.threads;
    Vector sums[4] = {};
    for (std::int64_t u = first; u < last; ++u) {
        const std::uint8_t *at = reading.data + u * unit;
        for (int i = 0; i < 16; ++i) {
            __builtin_prefetch(at + 4096 + i * line);
            Vector v;
            std::memcpy(&v, at + i * line, sizeof v);
            sums[i % 4] ^= v;
        }
    }
    const Vector all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
    std::uint64_t sum = 0;
    for (int i = 0; i < 8; ++i) sum ^= all[i];
    reading.sums[thread] = sum;
}

struct Multiplying {
    const Tiles &tiles;
    double seconds;
    double rates[1024] = {};
};

void multiply(void *context, int thread) {
    using Clock = std::chrono::steady_clock;
    constexpr std::int64_t steps = 8, rounds = 50, flop = 2 * 32 * tile_rows * tile_rows;
    Multiplying &all = *static_cast<Multiplying *>(context);
    const Memory operands(2 * steps * tile_step);
    all.tiles.begin();
    const Clock::time_point begin = Clock::now();
    std::chrono::duration<double> took{};
    double done = 0;
    while (took.count() < all.seconds) {
        all.tiles.loop(operands.data(), operands.data() + steps * tile_step, steps, rounds);
        done += static_cast<double>(steps * rounds * flop);
        took = Clock::now() - begin;
    }
    all.tiles.end();
    all.rates[thread] = done / took.count();
}

}  // namespace

double tile_rate(const Tiles &tiles, int threads, double seconds) {
    Pool pool(threads);
    const auto lock = pool.enter();
    Multiplying all{tiles, seconds};
    pool.run(multiply, &all);
    double sum = 0;
    for (int i = 0; i < threads; ++i) sum += all.rates[i];
    return sum;
}

double read_rate(std::int64_t bytes, int threads, int repetitions) {
    const Memory memory(static_cast<std::size_t>(bytes));
    std::memset(memory.data(), 1, static_cast<std::size_t>(bytes));
    Pool pool(threads);
    const auto lock = pool.enter();
    Reading reading{memory.data(), bytes / unit, threads, {}};
    double best = 0;
    for (int i = 0; i < repetitions; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        pool.run(read_part, &reading);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        best = std::max(best, static_cast<double>(reading.units * unit) / took.count());
    }
    return best;
}

}  // namespace forwardpass
