// Attention of each row over its own sequence, by (row, KV head) or by (row, KV head, split).
//
// A split is an absolute range of 256 positions; splits are combined in ascending order, so neither
// the number of threads nor what else is in the pass changes a bit. With many rows a thread does all
// the splits of a row and a KV head. With few, threads share the splits and combine them behind a
// barrier; their results lie in `partial`: heads × e floats for each split, then the maxima, then the
// sums, splits of a row and a KV head beside each other.

#include <algorithm>

#include "program.h"

namespace forwardpass {
namespace {

constexpr std::int64_t tasks_a_thread = 4;  // from as many on, splits are not shared

// The visible positions of a row.
struct Visible {
    std::int64_t begin, end, splits;

    Visible(const AttentionStep &step, std::int64_t position)
        : begin(step.first_visible(position)), end(position + 1), splits(position / kv_split - begin / kv_split + 1) {}
};

// Where the results of splits lie: one every heads × e floats, maxima and sums every `heads`.
struct Parts {
    float *mix, *max, *sum;
};

// Query heads head … head + heads − 1, all of one KV head.
struct Heads {
    const AttentionStep &step;
    Frame &frame;
    int thread;
    std::int64_t row, head, heads;

    Scratch &scratch() const { return frame.scratch[static_cast<std::size_t>(thread)]; }
};

void attend(const Heads &h, const Visible &seen, std::int64_t split, const Parts &parts) {
    const AttentionStep &step = h.step;
    const Frame &frame = h.frame;
    const std::int64_t e = step.width, group = h.head / (step.heads / step.groups);
    const std::int64_t base = (seen.begin / kv_split + split) * kv_split;
    const Cache &cache = *frame.pass.caches[frame.pass.sequences[h.row]];
    Split task;
    task.q = frame.at(step.q, h.row) + h.head * e;
    task.heads = static_cast<int>(h.heads);
    task.e = static_cast<int>(e);
    task.blocks = cache.blocks();
    task.key_offset = frame.shape->offset(step.state, 0, group);
    task.value_offset = frame.shape->offset(step.state, 1, group);
    task.begin = std::max(seen.begin, base);
    task.end = std::min(seen.end, base + kv_split);
    task.type = frame.shape->type();
    task.scale = step.scale;
    task.softcap = step.softcap;
    task.slopes = step.slopes.empty() ? nullptr : step.slopes.data() + h.head;
    task.position = frame.pass.positions[h.row];
    task.out = parts.mix + split * h.heads * e;
    task.max = parts.max + split * h.heads;
    task.sum = parts.sum + split * h.heads;
    task.scratch = h.scratch().scores;
    frame.kernels->attend(task);
}

void combine(const Heads &h, std::int64_t splits, const Parts &parts) {
    const AttentionStep &step = h.step;
    const std::int64_t e = step.width;
    for (std::int64_t i = 0; i < h.heads; ++i)
        h.frame.kernels->combine(
            parts.mix + i * e, h.heads * e, parts.max + i, parts.sum + i, h.heads,
            static_cast<int>(splits), static_cast<int>(e),
            step.sinks.empty() ? nullptr : step.sinks.data() + h.head + i,
            h.frame.at(step.out, h.row) + (h.head + i) * e);
}

// What products read of what was combined, and its check.
void leave(const Heads &h, bool quantize) {
    const AttentionStep &step = h.step;
    const std::int64_t column = h.head * step.width, width = h.heads * step.width;
    const float *out = h.frame.at(step.out, h.row) + column;
    if (quantize)
        h.frame.leave_operands(out, h.frame.slots[static_cast<std::size_t>(step.out.slot)], h.row,
                               column, width);
    if (h.frame.check) h.frame.check_row(h.thread, out, width, step.node, h.row);
}

void quantize_rows(const AttentionStep &step, Frame &frame, int thread) {
    frame.pool->barrier(thread);
    std::int64_t begin, end;
    while (frame.pool->take(thread, frame.pass.n, 1, begin, end))
        leave({step, frame, thread, begin, 0, step.heads}, true);
}

// Into how many the query heads of a KV head are split, so that each thread has some.
std::int64_t parts_of(const AttentionStep &step, const Frame &frame) {
    const std::int64_t tasks = frame.pass.n * step.groups, heads = step.heads / step.groups;
    const std::int64_t threads = frame.pool->threads();
    if (tasks >= threads || heads < 2) return 1;
    const std::int64_t most = std::min(heads, (threads + tasks - 1) / tasks);
    for (std::int64_t parts = most; parts > 1; --parts)
        if (heads % parts == 0 && heads / parts * step.width % block_width == 0) return parts;
    return 1;
}

// By (KV head, row): the rows of a prompt find the keys of a head in the cache.
void run_whole(const AttentionStep &step, Frame &frame, int thread) {
    const std::int64_t n = frame.pass.n, parts = parts_of(step, frame);
    const std::int64_t heads = step.heads / step.groups / parts, total = step.groups * parts * n;
    const bool quantize = step.quantize && whole_blocks(step);
    const Scratch &scratch = frame.scratch[static_cast<std::size_t>(thread)];
    const Parts results{scratch.mix, scratch.max, scratch.sum};
    const std::int64_t most =
        std::clamp<std::int64_t>(total / (16 * frame.pool->threads()), 1, 8);
    std::int64_t begin, end;
    while (frame.pool->take(thread, total, most, begin, end))
        for (; begin < end; ++begin) {
            const Heads h{step, frame, thread, begin % n, begin / n * heads, heads};
            const Visible seen(step, frame.pass.positions[h.row]);
            for (std::int64_t i = 0; i < seen.splits; ++i) attend(h, seen, i, results);
            combine(h, seen.splits, results);
            leave(h, quantize);
        }
    if (step.quantize && !quantize) quantize_rows(step, frame, thread);
}

// By (row, KV head, split), then by (row, KV head).
void run_shared(const AttentionStep &step, Frame &frame, int thread) {
    const std::int64_t n = frame.pass.n, heads = step.heads / step.groups;
    std::int64_t total = 0;
    for (std::int64_t row = 0; row < n; ++row)
        total += Visible(step, frame.pass.positions[row]).splits * step.groups;
    const bool quantize = step.quantize && whole_blocks(step);
    float *partial = reinterpret_cast<float *>(frame.partial.data());
    const auto parts_at = [&](std::int64_t task) -> Parts {
        float *max = partial + total * heads * step.width, *sum = max + total * heads;
        return {partial + task * heads * step.width, max + task * heads, sum + task * heads};
    };
    std::int64_t begin, end;
    while (frame.pool->take(thread, total, 1, begin, end)) {
        std::int64_t row = 0, first = 0;
        Visible seen(step, frame.pass.positions[0]);
        while (begin - first >= seen.splits * step.groups) {
            first += seen.splits * step.groups;
            seen = Visible(step, frame.pass.positions[++row]);
        }
        const std::int64_t group = (begin - first) / seen.splits;
        first += group * seen.splits;
        attend({step, frame, thread, row, group * heads, heads}, seen, begin - first,
               parts_at(first));
    }
    frame.pool->barrier(thread);
    while (frame.pool->take(thread, n * step.groups, 1, begin, end)) {
        const std::int64_t row = begin / step.groups, group = begin % step.groups;
        std::int64_t first = 0;
        for (std::int64_t i = 0; i < row; ++i)
            first += Visible(step, frame.pass.positions[i]).splits * step.groups;
        const Visible seen(step, frame.pass.positions[row]);
        const Heads h{step, frame, thread, row, group * heads, heads};
        combine(h, seen.splits, parts_at(first + group * seen.splits));
        leave(h, quantize);
    }
    if (step.quantize && !quantize) quantize_rows(step, frame, thread);
}

}  // namespace

bool whole_blocks(const AttentionStep &step) {
    return step.heads / step.groups * step.width % block_width == 0;
}

std::int64_t attention_partials(const AttentionStep &step, const Pass &pass, int threads) {
    const std::int64_t tasks = pass.n * step.groups;
    if (threads == 1 || tasks >= tasks_a_thread * threads) return 0;
    if (pass.n == 1 && tasks % threads == 0) return 0;  // even shares without splitting
    std::int64_t splits = 0, most = 0;
    for (std::int64_t row = 0; row < pass.n; ++row) {
        const Visible seen(step, pass.positions[row]);
        splits += seen.splits;
        most = std::max(most, seen.splits);
    }
    if (most == 1) return 0;
    return splits * step.heads * (step.width + 2);
}

void run_attention(const AttentionStep &step, Frame &frame, int thread) {
    if (frame.tiles(false)) run_prompt_attention(step, frame, thread);
    else if (attention_partials(step, frame.pass, frame.pool->threads()) > 0)
        run_shared(step, frame, thread);
    else run_whole(step, frame, thread);
}

}  // namespace forwardpass
