// Packs tables on threads of its own while its owner does something else. Knows nothing of Python.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/kernels.h"

namespace forwardpass {

// A table to be packed, its sizes checked. `mapped`: `stored` are pages of a file, mapped read-only,
// that are given up when they were read. `owner` keeps `stored` and `order` (null: as stored) alive.
struct PackingJob {
    Table table;
    const std::uint8_t *stored = nullptr;
    std::int64_t bytes = 0;
    const std::int64_t *order = nullptr;
    bool mapped = false;
    std::shared_ptr<void> owner;
};

// For one caller at a time.
class Packer {
  public:
    explicit Packer(int threads) : threads_(threads) {}
    ~Packer() { stop(); }
    Packer(const Packer &) = delete;
    Packer &operator=(const Packer &) = delete;

    void add(PackingJob job);    // begins at once
    bool wait(double seconds);   // until all is packed, for so long at most; whether it is
    void stop();                 // gives up what is not packed; lets the owners go
    std::int64_t packed() const;  // bytes of rows as they are stored

  private:
    struct Piece {
        std::size_t job;
        std::int64_t first, last;  // panels
    };
    void work();
    bool take(Piece &piece);
    void pack_piece(std::unique_lock<std::mutex> &lock, const Piece &piece);

    const int threads_;
    mutable std::mutex mutex_;
    std::condition_variable added_, done_;
    std::vector<PackingJob> jobs_;
    std::vector<std::int64_t> left_;  // panels of each job that are not packed
    std::vector<std::thread> workers_;
    std::size_t next_job_ = 0, finished_ = 0;  // jobs
    std::int64_t next_panel_ = 0, packed_ = 0;
    bool stopping_ = false;
};

// Panels of which about 1 MB is packed at a time.
std::int64_t panels_at_a_time(const Table &table);

}  // namespace forwardpass
