#include "packer.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "memory.h"
#include "pack.h"

namespace forwardpass {

std::int64_t panels_at_a_time(const Table &table) {
    return std::max<std::int64_t>(1, (1 << 20) / panel_bytes(table.type, table.cols));
}

void Packer::add(PackingJob job) {
    const std::unique_lock lock(mutex_);
    left_.push_back(panel_count(job.table.rows));
    jobs_.push_back(std::move(job));
    try {
        if (static_cast<int>(workers_.size()) < threads_)
            workers_.emplace_back([this] { work(); });
    } catch (const std::system_error &) {
        // Fewer threads than asked for: those that there are pack, without any `wait` does.
    }
    added_.notify_all();
}

bool Packer::wait(double seconds) {
    {
        std::unique_lock lock(mutex_);
        Piece piece;
        while (workers_.empty() && take(piece)) pack_piece(lock, piece);
        const auto most = std::chrono::duration<double>(seconds);
        if (!done_.wait_for(lock, most, [&] { return finished_ == jobs_.size(); })) return false;
    }
    stop();
    return true;
}

void Packer::stop() {
    {
        const std::unique_lock lock(mutex_);
        stopping_ = true;
        added_.notify_all();
    }
    for (std::thread &worker : workers_) worker.join();
    workers_.clear();
    jobs_.clear();
    left_.clear();
    next_job_ = finished_ = 0;
    next_panel_ = 0;
    stopping_ = false;
}

std::int64_t Packer::packed() const {
    const std::unique_lock lock(mutex_);
    return packed_;
}

void Packer::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        added_.wait(lock, [&] { return stopping_ || next_job_ < jobs_.size(); });
        Piece piece;
        if (stopping_) return;
        if (take(piece)) pack_piece(lock, piece);
    }
}

bool Packer::take(Piece &piece) {
    if (next_job_ == jobs_.size()) return false;
    const Table &table = jobs_[next_job_].table;
    const std::int64_t panels = panel_count(table.rows);
    piece = {next_job_, next_panel_, std::min(panels, next_panel_ + panels_at_a_time(table))};
    next_panel_ = piece.last;
    if (piece.last == panels) {
        ++next_job_;
        next_panel_ = 0;
    }
    return true;
}

void Packer::pack_piece(std::unique_lock<std::mutex> &lock, const Piece &piece) {
    const auto [table, stored, bytes, order, mapped, owner] = jobs_[piece.job];
    lock.unlock();
    const std::int64_t row = stored_row_bytes(table.type, table.cols);
    const std::int64_t begin = piece.first * panel_rows;
    const std::int64_t end = std::min(table.rows, piece.last * panel_rows);
    // The memory is the arena's, which may be written to.
    pack(table.type, stored, table.rows, table.cols, order, piece.first, piece.last,
         const_cast<std::uint8_t *>(table.data) + piece.first * panel_bytes(table.type, table.cols));
    if (mapped && !order) forget_pages(stored + begin * row, (end - begin) * row);
    lock.lock();
    packed_ += (end - begin) * row;
    if ((left_[piece.job] -= piece.last - piece.first) > 0) return;
    // Others read the edges of pieces again after they were given up.
    if (mapped) forget_pages(stored, bytes);
    if (++finished_ == jobs_.size()) done_.notify_all();
}

}  // namespace forwardpass
