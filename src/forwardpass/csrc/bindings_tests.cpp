// Entries for tests and measurements: one kernel at one level, over NumPy arrays.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "arrays.h"
#include "levels.h"
#include "program.h"

namespace nb = nanobind;

namespace forwardpass {
namespace {

using Floats = nb::ndarray<nb::numpy, float>;

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

// One row function for each row of a [rows, width]. Views that a kind does not need are None.
Floats test_rows(const std::string &level, const std::string &kind, nb::handle a, nb::handle b,
                 nb::handle weight, nb::handle bias, float number, std::int64_t pairs,
                 bool interleaved, nb::handle cos, nb::handle sin) {
    const Kernels &k = *choose_level(level);
    const auto x = array<float>(a, "a", 2);
    const auto y = array_or_none<float>(b, "b", 2);
    const auto gain = array_or_none<float>(weight, "weight", 1);
    const auto shift = array_or_none<float>(bias, "bias", 1);
    const auto c = array_or_none<float>(cos, "cos", 1), s = array_or_none<float>(sin, "sin", 1);
    const std::int64_t rows = x.shape(0), width = x.shape(1);
    const bool two = kind == "add" || kind == "silu_multiply" || kind == "gelu_multiply";
    const bool norm = kind == "rms_norm" || kind == "layer_norm";
    if (two && (!y || y.shape(0) != rows || y.shape(1) != width)) refuse("b is to be like a");
    if (norm && (!gain || gain.size != width)) refuse("weight has a number for each column");
    if (shift && shift.size != width) refuse("bias has a number for each column");
    if (kind == "rope" && (!c || !s || pairs < 1 || 2 * pairs > width || c.size != pairs ||
                           s.size != pairs))
        refuse("cos and sin have a number for each pair");
    Floats result = new_array<float>({size(rows), size(width)});
    for (std::int64_t i = 0; i < rows; ++i) {
        const float *in = x.data + i * width, *second = two ? y.data + i * width : nullptr;
        float *out = result.data() + i * width;
        if (kind == "add") k.add(in, second, out, width);
        else if (kind == "scale") k.scale(in, number, out, width);
        else if (kind == "rms_norm") k.rms_norm(in, gain.data, number, out, width);
        else if (kind == "layer_norm") k.layer_norm(in, gain.data, shift.data, number, out, width);
        else if (kind == "relu") k.relu(in, out, width);
        else if (kind == "gelu") k.gelu(in, out, width);
        else if (kind == "gelu_erf") k.gelu_erf(in, out, width);
        else if (kind == "silu_multiply") k.silu_multiply(in, second, out, width);
        else if (kind == "gelu_multiply") k.gelu_multiply(in, second, out, width);
        else if (kind == "softcap") k.softcap(in, number, out, width);
        else if (kind == "rope") k.rope(in, c.data, s.data, pairs, interleaved, out, width);
        else refuse("row function \"" + kind + "\" is unknown");
    }
    return result;
}

bool test_finite(const std::string &level, nb::handle x) {
    const auto values = array<float>(x, "x", 1);
    return choose_level(level)->finite(values.data, values.size);
}

// Integer `at` of a block, in the order of its inputs.
std::int16_t integer_at(const XBlock &block, bool planes, int at) {
    if (planes) return static_cast<std::int16_t>(block.q[at] * 256 + block.q[32 + at]);
    constexpr int place[4] = {0, 2, 1, 3};
    std::int16_t value;
    std::memcpy(&value, block.q + 2 * (at / 4 * 4 + place[at % 4]), sizeof value);
    return value;
}

nb::tuple test_quantize(const std::string &level, nb::handle x) {
    const Kernels &k = *choose_level(level);
    const auto values = array<float>(x, "x", 1);
    std::vector<XBlock> blocks(size((values.size + block_width - 1) / block_width));
    k.quantize(values.data, blocks.data(), values.size);
    auto q = new_array<std::int16_t>({size(values.size)});
    auto scale = new_array<float>({blocks.size()});
    auto half = new_array<std::int32_t>({blocks.size(), 2});
    for (std::int64_t i = 0; i < values.size; ++i)
        q.data()[i] = integer_at(blocks[size(i / block_width)], k.planes, i % block_width);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        scale.data()[i] = blocks[i].scale;
        std::copy_n(blocks[i].half, 2, half.data() + 2 * i);
    }
    return nb::make_tuple(q, scale, half);
}

Table packed(Arena &arena, const std::string &type, nb::handle stored, std::int64_t rows,
             std::int64_t cols) {
    const auto bytes = array<std::uint8_t>(stored, "stored", 1);
    return pack_table(arena, type_named(type), rows, cols, bytes.data, bytes.size, nullptr, 1);
}

// x [n, cols] times the transposed table: [n, rows].
Floats test_products(const std::string &level, const std::string &type, nb::handle stored,
                     std::int64_t rows, std::int64_t cols, nb::handle x) {
    const Kernels &k = *choose_level(level);
    Arena arena;
    const Table table = packed(arena, type, stored, rows, cols);
    const auto values = array<float>(x, "x", 2);
    if (values.shape(1) != cols) refuse("x has other columns than the table");
    const std::int64_t n = values.shape(0), blocks = (cols + block_width - 1) / block_width;
    const std::int64_t panels = panel_count(rows), stride = panels * panel_rows;
    std::vector<XBlock> quantized(size(n * blocks));
    std::vector<float> padded(size(n * blocks * block_width)), out(size(n * stride));
    for (std::int64_t i = 0; i < n; ++i) {
        k.quantize(values.data + i * cols, quantized.data() + i * blocks, cols);
        std::copy_n(values.data + i * cols, cols, padded.data() + i * blocks * block_width);
    }
    if (n > 0 && takes_blocks(table.type))
        k.products(table, 0, panels, quantized.data(), nullptr, blocks,
                   static_cast<int>(n), out.data(), stride);
    else if (n > 0)
        k.products(table, 0, panels, nullptr, padded.data(), blocks * block_width,
                   static_cast<int>(n), out.data(), stride);
    Floats result = new_array<float>({size(n), size(rows)});
    for (std::int64_t i = 0; i < n; ++i)
        std::copy_n(out.data() + i * stride, rows, result.data() + i * rows);
    return result;
}

Floats test_decode(const std::string &level, const std::string &type, nb::handle stored,
                   std::int64_t rows, std::int64_t cols) {
    Arena arena;
    const Table table = packed(arena, type, stored, rows, cols);
    Floats result = new_array<float>({size(rows), size(cols)});
    for (std::int64_t i = 0; i < rows; ++i)
        choose_level(level)->decode_row(table, i, result.data() + i * cols);
    return result;
}

// One query row [h, e] at the last of s positions, keys and values [s, g, e], by the steps of a
// program: cache blocks, splits and their combination. [h, e].
Floats test_attention(const std::string &level, const std::string &kv_type, nb::handle q,
                      nb::handle keys, nb::handle values, float scale, float softcap,
                      std::int64_t window, nb::handle slopes, nb::handle sinks, bool prompt,
                      int threads) {
    const auto query = array<float>(q, "q", 3);
    const auto k = array<float>(keys, "keys", 3), v = array<float>(values, "values", 3);
    const std::int64_t s = k.shape(0), groups = k.shape(1), e = k.shape(2);
    const std::int64_t n = query.shape(0), h = query.shape(1);
    if (s < 1 || s > (1 << 24) || v.shape(0) != s || v.shape(1) != groups || v.shape(2) != e ||
        query.shape(2) != e || n < 1 || n > s || threads < 1 || threads > 1024)
        refuse("q is [n, h, e], keys and values [s, g, e], n <= s; threads are from 1 to 1024");
    const KvType type = kv_type == "f32" ? KvType::f32 : kv_type == "bf16" ? KvType::bf16
                                                                           : KvType::f16;
    if (type == KvType::f16 && kv_type != "f16") refuse("kv_type: there are f16, bf16, f32");
    const Tables tables(1);
    Program program(tables, {{h * e}, {h * e}}, {{groups, e}}, type, n, choose_level(level),
                    threads);
    AttentionStep step;
    step.q = {0, 0};
    step.out = {1, 0};
    step.state = 0;
    step.heads = h;
    step.groups = groups;
    step.width = e;
    step.scale = scale;
    step.softcap = softcap;
    step.window = window;
    for (const auto &[from, to] : {std::pair{slopes, &step.slopes}, {sinks, &step.sinks}})
        if (const auto each = array_or_none<float>(from, "slopes and sinks", 1))
            to->assign(each.data, each.data + each.size);
    program.add(std::move(step));
    Cache cache(program.shape());
    cache.reserve(s);
    for (std::int64_t i = 0; i < s * groups; ++i) {
        std::uint8_t *block = cache.block(i / groups / kv_block);
        if (!program.kernels().kv_write(type, k.data + i * e, v.data + i * e, static_cast<int>(e),
                                        static_cast<int>(i / groups % kv_block),
                                        block + cache.shape().offset(0, 0, i % groups),
                                        block + cache.shape().offset(0, 1, i % groups)))
            refuse("a key or value does not fit " + kv_type);
    }
    cache.set_length(s - n);
    const std::size_t rows = size(n);
    std::vector<std::int64_t> tokens(rows), positions(rows);
    const std::vector<std::int32_t> sequences(rows);
    for (std::int64_t i = 0; i < n; ++i) {
        positions[size(i)] = s - n + i;
        std::copy_n(query.data + i * h * e, h * e, program.slot(0).row(i));
    }
    Cache *const caches[] = {&cache};
    const Pass pass{tokens.data(), positions.data(), sequences.data(), n, caches, 1, nullptr, 0,
                    prompt};
    program.prepare(pass, 0, 1);
    program.run(pass, 0, 1, false, false);
    Floats result = new_array<float>({rows, size(h), size(e)});
    for (std::int64_t i = 0; i < n; ++i)
        std::copy_n(program.slot(1).row(i), h * e, result.data() + i * h * e);
    return result;
}

// Seconds of one barrier, and of `count` empty jobs with `gap` seconds of other work before each.
nb::tuple test_pool(int threads, int count, double gap) {
    if (threads < 1 || threads > 1024 || count < 1) refuse("threads and count are at least 1");
    using Clock = std::chrono::steady_clock;
    struct Meetings {
        Pool pool;
        int count;
    } meetings{Pool(threads), count};
    auto jobs = new_array<double>({size(count)});
    double barrier = 0;
    {
        const nb::gil_scoped_release released;
        const auto lock = meetings.pool.enter();
        const auto since = [](Clock::time_point begin) {
            return std::chrono::duration<double>(Clock::now() - begin).count();
        };
        for (int i = 0; i < count; ++i) {
            for (const Clock::time_point idle = Clock::now(); since(idle) < gap;) {
            }
            const Clock::time_point begin = Clock::now();
            meetings.pool.run([](void *, int) {}, nullptr);
            jobs.data()[i] = since(begin);
        }
        const Clock::time_point begin = Clock::now();
        meetings.pool.run([](void *context, int thread) {
            Meetings &all = *static_cast<Meetings *>(context);
            for (int i = 0; i < all.count; ++i) all.pool.barrier(thread);
        }, &meetings);
        barrier = since(begin) / count;
    }
    return nb::make_tuple(barrier, jobs);
}

}  // namespace

void bind_tests(nb::module_ &module) {
    module.def("test_rows", &test_rows, nb::arg("level"), nb::arg("kind"), nb::arg("a"),
               nb::arg("b").none() = nb::none(), nb::arg("weight").none() = nb::none(),
               nb::arg("bias").none() = nb::none(), nb::arg("number") = 0.0f,
               nb::arg("pairs") = 0, nb::arg("interleaved") = false,
               nb::arg("cos").none() = nb::none(), nb::arg("sin").none() = nb::none());
    module.def("test_finite", &test_finite, nb::arg("level"), nb::arg("x"));
    module.def("test_quantize", &test_quantize, nb::arg("level"), nb::arg("x"));
    module.def("test_products", &test_products, nb::arg("level"), nb::arg("type"),
               nb::arg("stored"), nb::arg("rows"), nb::arg("cols"), nb::arg("x"));
    module.def("test_decode", &test_decode, nb::arg("level"), nb::arg("type"), nb::arg("stored"),
               nb::arg("rows"), nb::arg("cols"));
    module.def("test_attention", &test_attention, nb::arg("level"), nb::arg("kv_type"),
               nb::arg("q"), nb::arg("keys"), nb::arg("values"), nb::arg("scale"),
               nb::arg("softcap") = 0.0f, nb::arg("window") = 0,
               nb::arg("slopes").none() = nb::none(), nb::arg("sinks").none() = nb::none(),
               nb::arg("prompt") = false, nb::arg("threads") = 1);
    module.def("test_pool", &test_pool, nb::arg("threads"), nb::arg("count"), nb::arg("gap"));
}

}  // namespace forwardpass
