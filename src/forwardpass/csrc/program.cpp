// A pass: what differs from pass to pass is checked, then all threads run the steps in order.

#include "program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <stdexcept>

namespace forwardpass {
namespace {

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }
std::string text(std::int64_t number) { return std::to_string(number); }

std::size_t round_up(std::size_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

void Frame::fail(int thread, Fault::Kind kind, int node, std::int64_t row) {
    Fault &fault = scratch[static_cast<std::size_t>(thread)].fault;
    if (fault.kind == Fault::none || row < fault.row) fault = {kind, -1, node, row};
}

void Frame::check_row(int thread, const float *x, std::int64_t width, int node, std::int64_t row) {
    if (!kernels->finite(x, width)) fail(thread, Fault::finite, node, row);
}

void Frame::leave_operands(const float *x, const SlotMemory &slot, std::int64_t row,
                           std::int64_t column, std::int64_t width) const {
    const std::int64_t block = column / block_width;
    const Tiles *t = tiles(slot.wanted);
    if (t) t->pack(x, slot.tile_row(row) + block * tile_step, width);
    else if (slot.as_blocks) kernels->quantize(x, slot.block_row(row) + block, width);
}

namespace {

// Tiles are the thread's while this lives.
class HeldTiles {
  public:
    explicit HeldTiles(const Tiles *tiles) : tiles_(tiles) {
        if (tiles_) tiles_->begin();
    }
    ~HeldTiles() {
        if (tiles_) tiles_->end();
    }
    HeldTiles(const HeldTiles &) = delete;
    HeldTiles &operator=(const HeldTiles &) = delete;

  private:
    const Tiles *tiles_;
};

}  // namespace

// The first step at which something went wrong is shared as a number, not as a flag: a thread that
// leaves a barrier late must not see a fault of the step behind it and stop one step before others.
struct Program::Turn {
    Program &program;
    std::int64_t first, last;
    bool stamps;
    std::atomic<std::int64_t> failed{INT64_MAX};
};

void Program::prepare(const Pass &pass, std::int64_t first, std::int64_t last) {
    const std::int64_t steps = static_cast<std::int64_t>(steps_.size());
    if (first < 0 || first > last || last > steps)
        refuse("steps " + text(first) + " to " + text(last) + " of " + text(steps));
    if (pass.n < 1 || pass.n > rows_)
        refuse("a pass of " + text(pass.n) + " rows: the program has room for 1 to " + text(rows_));
    for (std::int64_t i = 0; i < pass.r; ++i)
        if (pass.wanted[i] < 0 || pass.wanted[i] >= pass.n ||
            (i > 0 && pass.wanted[i] <= pass.wanted[i - 1]))
            refuse("wanted[" + text(i) + "] = " + text(pass.wanted[i]) +
                   ": rows asked for ascend from 0 to " + text(pass.n - 1));
    std::vector<std::int64_t> ends;
    for (std::int64_t i = 0; i < pass.cache_count; ++i) {
        if (!(pass.caches[i]->shape() == *shape_))
            refuse("cache " + text(i) + " is of another shape");
        for (std::int64_t k = 0; k < i; ++k)
            if (pass.caches[i] == pass.caches[k]) refuse("cache " + text(i) + " is there twice");
        ends.push_back(pass.caches[i]->length());
    }
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < pass.n; ++i) {
        if (pass.tokens[i] < 0 || pass.tokens[i] >= tokens_)
            refuse("tokens[" + text(i) + "] = " + text(pass.tokens[i]) + ": the embedding has " +
                   text(tokens_) + " rows");
        const std::int32_t s = pass.sequences[i];
        if (s < 0 || s >= pass.cache_count)
            refuse("sequences[" + text(i) + "] = " + text(s) + " of " + text(pass.cache_count));
        std::int64_t &end = ends[static_cast<std::size_t>(s)];
        if (pass.positions[i] != end || end >= positions_)
            refuse("positions[" + text(i) + "] = " + text(pass.positions[i]) + ": sequence " +
                   text(s) + " goes on at " + text(end) +
                   (end >= positions_ ? ", behind the last learned position" : ""));
        longest = std::max(longest, ++end);
    }
    for (const auto &[number, pairs] : rope_pairs_) {
        const Rope rope = number < static_cast<int>(frame_.ropes.size())
                              ? frame_.ropes[static_cast<std::size_t>(number)]
                              : Rope{};
        if (rope.pairs != pairs || rope.positions < longest)
            refuse("rope " + text(number) + " has " + text(rope.positions) + " positions of " +
                   text(rope.pairs) + " pairs: " + text(longest) + " of " + text(pairs) +
                   " are needed");
    }
    for (std::int64_t i = 0; i < pass.cache_count; ++i)
        pass.caches[i]->reserve(ends[static_cast<std::size_t>(i)]);
    sealed_ = true;
}

// Memory of the threads: made once, and again when sequences have more splits than before.
void Program::make_scratch(std::int64_t splits) {
    if (frame_.scratch[0].memory.data() && splits <= splits_) return;
    const std::int64_t room = std::max(2 * splits_, splits);
    const auto floats = [](std::int64_t count) {
        return round_up(static_cast<std::size_t>(count));
    };
    const std::size_t sums = floats(8 * 32 * most_strips_), row = floats(added_width_);
    const std::size_t scores = floats(heads_ * kv_split), mix = floats(room * head_floats_);
    const std::size_t scalars = floats(room * heads_);
    const std::int64_t all_rows = (rows_ + tile_rows - 1) / tile_rows * tile_rows;
    const std::int64_t tile_columns = most_tile_strips_ * tile_rows + panel_rows;
    const std::size_t tile_sums = most_tile_strips_ ? floats(all_rows * tile_columns) : 0;
    const std::size_t tile_weights = floats(most_tile_strips_ * most_chunk * tile_step / 4);
    const std::size_t attention =
        frame_.kernels->tiles ? floats(attention_scratch(head_width_) / 4) : 0;
    std::vector<Memory> memory;
    for (int t = 0; t < threads(); ++t)
        memory.emplace_back((2 * sums + row + scores + mix + 2 * scalars + tile_sums +
                             tile_weights + attention) * sizeof(float));
    for (Scratch &scratch : frame_.scratch) {
        scratch.memory = std::move(memory.back());
        memory.pop_back();
        float *at = reinterpret_cast<float *>(scratch.memory.data());
        const auto take = [&at](std::size_t count) { return (at += count) - count; };
        scratch.sums = take(sums);
        scratch.ups = take(sums);
        scratch.row = take(row);
        scratch.scores = take(scores);
        scratch.mix = take(mix);
        scratch.max = take(scalars);
        scratch.sum = take(scalars);
        scratch.tile_sums = take(tile_sums);
        scratch.tile_weights = reinterpret_cast<std::uint8_t *>(take(tile_weights));
        scratch.attention = reinterpret_cast<std::uint8_t *>(take(attention));
    }
    splits_ = room;
}

std::int64_t Program::rows_of(const Step &step) const {
    const RowStep *rows = std::get_if<RowStep>(&step.what);
    const LinearStep *linear = std::get_if<LinearStep>(&step.what);
    const bool wanted = (rows && rows->wanted) || (linear && linear->wanted);
    return wanted ? frame_.pass.r : frame_.pass.n;
}

void Program::run_step(const Step &step, int thread) {
    const std::int64_t rows = rows_of(step);
    if (rows == 0) return;
    if (const RowStep *s = std::get_if<RowStep>(&step.what)) run_rows(*s, frame_, rows, thread);
    else if (const LinearStep *s = std::get_if<LinearStep>(&step.what))
        run_linear(*s, step.strips, frame_, rows, thread);
    else run_attention(std::get<AttentionStep>(step.what), frame_, thread);
}

// The memory's latency passes while threads wait for each other: what follows a step of products or
// of attention are products, or operations on few rows and then products.
void Program::fetch_next(std::int64_t step, std::int64_t last, int thread) {
    if (std::get_if<RowStep>(&steps_[static_cast<std::size_t>(step)].what)) return;
    for (std::int64_t i = step + 1; i < std::min(step + 3, last); ++i) {
        const Step &next = steps_[static_cast<std::size_t>(i)];
        if (const LinearStep *linear = std::get_if<LinearStep>(&next.what))
            return fetch_first(*linear, next.strips, frame_, thread);
        if (std::get_if<AttentionStep>(&next.what)) return;
    }
}

void Program::work(Turn &turn, int thread) {
    using Clock = std::chrono::steady_clock;
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    const bool stamps = turn.stamps && thread == 0;
    const Fault &fault = frame_.scratch[static_cast<std::size_t>(thread)].fault;
    const HeldTiles tiles(frame_.tiles(false));
    Clock::time_point begin = stamps ? Clock::now() : Clock::time_point{};
    for (std::int64_t i = turn.first; i < turn.last; ++i) {
        Step &step = steps_[static_cast<std::size_t>(i)];
        run_step(step, thread);
        if (fault.kind != Fault::none) {
            std::int64_t known = turn.failed.load();
            while (i < known && !turn.failed.compare_exchange_weak(known, i)) {
            }
        }
        fetch_next(i, turn.last, thread);
        const Clock::time_point done = stamps ? Clock::now() : Clock::time_point{};
        pool_.barrier(thread);
        if (stamps) {
            const Clock::time_point end = Clock::now();
            step.work = seconds(done - begin);
            step.wait = seconds(end - done);
            begin = end;
        }
        if (turn.failed.load(std::memory_order_relaxed) <= i) return;
    }
}

Fault Program::run(const Pass &pass, std::int64_t first, std::int64_t last, bool check,
                   bool stamps) {
    const auto lock = pool_.enter();
    std::int64_t splits = 1, partials = 0, tiles = 0;
    for (std::int64_t i = 0; i < pass.n; ++i)
        splits = std::max(splits, pass.positions[i] / kv_split + 1);
    for (const Step &step : steps_)
        if (const AttentionStep *s = std::get_if<AttentionStep>(&step.what)) {
            if (pass.prompt && frame_.kernels->tiles)
                tiles = std::max(tiles, attention_tile_bytes(*s, pass));
            else partials = std::max(partials, attention_partials(*s, pass, pool_.threads()));
        }
    const auto grow = [](Memory &memory, std::int64_t bytes) {
        const std::size_t wanted = static_cast<std::size_t>(bytes);
        if (memory.size() < wanted) memory = Memory(wanted + wanted / 4);
    };
    grow(frame_.partial, 2 * partials * static_cast<std::int64_t>(sizeof(float)));
    grow(frame_.kv_tiles, tiles);
    make_scratch(splits);
    frame_.pass = pass;
    frame_.check = check;
    for (Scratch &scratch : frame_.scratch) scratch.fault = {};
    if (stamps)
        for (Step &step : steps_) step.work = step.wait = 0;
    Turn turn{*this, first, last, stamps};
    pool_.run([](void *t, int thread) {
        static_cast<Turn *>(t)->program.work(*static_cast<Turn *>(t), thread);
    }, &turn);

    Fault fault;
    for (const Scratch &scratch : frame_.scratch)
        if (scratch.fault.kind != Fault::none &&
            (fault.kind == Fault::none || scratch.fault.row < fault.row))
            fault = scratch.fault;
    if (fault.kind != Fault::none) {
        fault.step = static_cast<int>(turn.failed.load());
        return fault;
    }
    if (last == static_cast<std::int64_t>(steps_.size()))
        for (std::int64_t i = 0; i < pass.n; ++i)
            pass.caches[pass.sequences[i]]->set_length(pass.positions[i] + 1);
    return fault;
}

void Program::set_rope(int number, Rope rope) {
    const auto lock = pool_.enter();
    const std::size_t at = static_cast<std::size_t>(number);
    if (frame_.ropes.size() <= at) frame_.ropes.resize(at + 1);
    frame_.ropes[at] = rope;
}

const SlotMemory &Program::slot(std::int64_t number) const {
    if (number < 0 || number >= static_cast<std::int64_t>(frame_.slots.size()))
        refuse("slot " + text(number) + " of " +
               text(static_cast<std::int64_t>(frame_.slots.size())));
    return frame_.slots[static_cast<std::size_t>(number)];
}

}  // namespace forwardpass
