// Attention of the rows of a prompt by tiles: the keys and values of some KV heads are turned into
// tiles, then blocks of 32 rows, each a query head at a position, see what they see of them.
//
// Bytes read: what is visible of the cache, once for each step, and the tiles made of it, which are
// as many, once for each block of rows. So many KV heads are taken at a time as have
// `most_bytes` of tiles; threads meet between them.

#include <algorithm>

#include "program.h"

namespace forwardpass {
namespace {

constexpr std::int64_t most_bytes = 16 << 20;

// The rows of a pass that belong to one sequence, and the splits that they see.
struct Part {
    std::int64_t row, rows, first, splits, end;
};

class Prompt {
  public:
    Prompt(const AttentionStep &step, Frame &frame, int thread)
        : step_(step), frame_(frame), thread_(thread), heads_(step.heads / step.groups),
          direct_(step.width % block_width == 0) {}

    void run(const Part &part) const {
        const std::int64_t at_once = heads_at_once(step_, part.splits);
        for (std::int64_t group = 0; group < step_.groups; group += at_once) {
            const std::int64_t groups = std::min(at_once, step_.groups - group);
            std::int64_t begin, end;
            while (frame_.pool->take(thread_, groups * part.splits, 1, begin, end))
                turn(part, group + begin / part.splits, begin / part.splits, begin % part.splits);
            frame_.pool->barrier(thread_);
            const std::int64_t blocks = (part.rows * heads_ + tile_rows - 1) / tile_rows;
            while (frame_.pool->take(thread_, groups * blocks, 1, begin, end))
                attend(part, group + begin / blocks, begin / blocks, begin % blocks);
            frame_.pool->barrier(thread_);
        }
        if (!step_.quantize || direct_) return;
        std::int64_t begin, end;
        while (frame_.pool->take(thread_, part.rows, 1, begin, end))
            frame_.leave_operands(frame_.at(step_.out, part.row + begin), out(), part.row + begin, 0,
                                  step_.heads * step_.width);
        frame_.pool->barrier(thread_);
    }

    static std::int64_t heads_at_once(const AttentionStep &step, std::int64_t splits) {
        const std::int64_t bytes = 2 * splits * kv_tile_bytes(step.width);
        return std::clamp<std::int64_t>(most_bytes / bytes, 1, step.groups);
    }

  private:
    const SlotMemory &out() const {
        return frame_.slots[static_cast<std::size_t>(step_.out.slot)];
    }
    // Tiles of the keys of the head of that place among those that are there; its values follow.
    std::uint8_t *tiles(const Part &part, std::int64_t place) const {
        return frame_.kv_tiles.data() + 2 * place * part.splits * kv_tile_bytes(step_.width);
    }

    void turn(const Part &part, std::int64_t group, std::int64_t place, std::int64_t split) const {
        const Cache &cache = *frame_.pass.caches[frame_.pass.sequences[part.row]];
        const std::int64_t bytes = kv_tile_bytes(step_.width);
        std::uint8_t *keys = tiles(part, place) + split * bytes;
        frame_.kernels->tiles->keys_and_values(
            {frame_.shape->type(), static_cast<int>(step_.width), cache.blocks(),
             frame_.shape->offset(step_.state, 0, group), frame_.shape->offset(step_.state, 1, group),
             part.first + split, part.end, keys, keys + part.splits * bytes});
    }

    void attend(const Part &part, std::int64_t group, std::int64_t place, std::int64_t block) const {
        const float *q[tile_rows];
        float *results[tile_rows];
        std::int64_t begins[tile_rows], ends[tile_rows];
        float slopes[tile_rows], sinks[tile_rows];
        const std::int64_t from = block * tile_rows;
        const std::int64_t count = std::min(tile_rows, part.rows * heads_ - from);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t row = part.row + (from + i) / heads_;
            const std::int64_t head = group * heads_ + (from + i) % heads_;
            const std::int64_t position = frame_.pass.positions[row];
            q[i] = frame_.at(step_.q, row) + head * step_.width;
            results[i] = frame_.at(step_.out, row) + head * step_.width;
            begins[i] = step_.first_visible(position);
            ends[i] = position + 1;
            const std::size_t number = static_cast<std::size_t>(head);
            if (!step_.slopes.empty()) slopes[i] = step_.slopes[number];
            if (!step_.sinks.empty()) sinks[i] = step_.sinks[number];
        }
        const std::uint8_t *keys = tiles(part, place);
        frame_.kernels->tiles->attend(
            {static_cast<int>(count), static_cast<int>(step_.width), q, begins, ends,
             step_.slopes.empty() ? nullptr : slopes, step_.sinks.empty() ? nullptr : sinks,
             step_.scale, step_.softcap, keys, keys + part.splits * kv_tile_bytes(step_.width),
             part.first, results, frame_.scratch[static_cast<std::size_t>(thread_)].attention});
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t row = part.row + (from + i) / heads_;
            const std::int64_t column = (group * heads_ + (from + i) % heads_) * step_.width;
            if (step_.quantize && direct_)
                frame_.leave_operands(results[i], out(), row, column, step_.width);
            if (frame_.check)
                frame_.check_row(thread_, results[i], step_.width, step_.node, row);
        }
    }

    const AttentionStep &step_;
    Frame &frame_;
    const int thread_;
    const std::int64_t heads_;  // query heads of a KV head
    const bool direct_;         // each head leaves whole blocks of what products read
};

// call(part) for each sequence of the pass: its rows follow one another.
template <class Call> void each_part(const AttentionStep &step, const Pass &pass, Call call) {
    for (std::int64_t row = 0, next; row < pass.n; row = next) {
        next = row + 1;
        while (next < pass.n && pass.sequences[next] == pass.sequences[row]) ++next;
        const std::int64_t first = step.first_visible(pass.positions[row]) / kv_split;
        const std::int64_t end = pass.positions[next - 1] + 1;
        call(Part{row, next - row, first, (end - 1) / kv_split - first + 1, end});
    }
}

}  // namespace

std::int64_t attention_tile_bytes(const AttentionStep &step, const Pass &pass) {
    std::int64_t most = 0;
    each_part(step, pass, [&](const Part &part) {
        const std::int64_t heads = Prompt::heads_at_once(step, part.splits);
        most = std::max(most, 2 * heads * part.splits * kv_tile_bytes(step.width));
    });
    return most;
}

void run_prompt_attention(const AttentionStep &step, Frame &frame, int thread) {
    const Prompt prompt(step, frame, thread);
    each_part(step, frame.pass, [&](const Part &part) { prompt.run(part); });
}

}  // namespace forwardpass
