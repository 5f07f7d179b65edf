#include "tables.h"

#include <atomic>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "pack.h"

namespace forwardpass {
namespace {

constexpr std::int64_t most_rows = std::int64_t{1} << 31, most_cols = std::int64_t{1} << 31;
constexpr const char *names[] = {"f32",  "f16",  "bf16", "q4_0", "q4_1",     "q5_0",     "q5_1",
                                 "q8_0", "q4_k", "q5_k", "q6_k", "mlx4_f16", "mlx4_bf16"};
static_assert(std::size(names) == static_cast<std::size_t>(Type::count));

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }

// Inputs that a stored block has.
std::int64_t block_of(Type type) {
    if (!takes_blocks(type)) return 1;
    return type == Type::q4_k || type == Type::q5_k || type == Type::q6_k ? 256 : 32;
}

void check_shape(Type type, std::int64_t rows, std::int64_t cols) {
    const std::string shape = std::to_string(rows) + " x " + std::to_string(cols);
    if (rows < 1 || cols < 1 || rows > most_rows || cols > most_cols)
        refuse("a table of " + shape + ": both must be from 1 to 2^31");
    if (cols % block_of(type))
        refuse("a table of " + shape + ": columns of " + type_name(type) +
               " come in multiples of " + std::to_string(block_of(type)));
}

std::uint8_t *room(Arena &arena, Type type, std::int64_t rows, std::int64_t cols) {
    return arena.take(static_cast<std::size_t>(panel_count(rows) * panel_bytes(type, cols)));
}

// work(first, last) of panels on several threads, in pieces of about 1 MB.
template <class Work>
void over_panels(const Table &table, int threads, Work work) {
    const std::int64_t panels = panel_count(table.rows);
    const std::int64_t piece = panels_at_a_time(table);
    std::atomic<std::int64_t> next{0};
    const auto loop = [&] {
        for (;;) {
            const std::int64_t first = next.fetch_add(piece);
            if (first >= panels) return;
            work(first, first + piece < panels ? first + piece : panels);
        }
    };
    std::vector<std::thread> others;
    try {
        for (int i = 1; i < threads && i * piece < panels; ++i) others.emplace_back(loop);
    } catch (const std::system_error &) {
        // Fewer threads than asked for: the rest is packed by those that there are.
    }
    loop();
    for (std::thread &other : others) other.join();
}

}  // namespace

const char *type_name(Type type) { return names[static_cast<int>(type)]; }

bool is_mlx4(Type type) { return type == Type::mlx4_f16 || type == Type::mlx4_bf16; }

Type type_named(const std::string &name) {
    std::string offered;
    for (int i = 0; i < static_cast<int>(Type::count); ++i) {
        if (name == names[i]) return static_cast<Type>(i);
        offered += (i ? ", " : "") + std::string(names[i]);
    }
    refuse("table type \"" + name + "\": there are " + offered);
}

PackingJob packing_job(Arena &arena, Type type, std::int64_t rows, std::int64_t cols,
                       const std::uint8_t *stored, std::int64_t bytes, const std::int64_t *order) {
    if (is_mlx4(type)) refuse("tables of mlx4 are added by add_mlx4");
    check_shape(type, rows, cols);
    const std::int64_t row_bytes = stored_row_bytes(type, cols), stored_rows = bytes / row_bytes;
    if (bytes % row_bytes || (!order && stored_rows != rows))
        refuse("a table of " + std::to_string(rows) + " x " + std::to_string(cols) + " " +
               type_name(type) + ": " + std::to_string(bytes) + " bytes are offered, a row has " +
               std::to_string(row_bytes));
    if (order)
        for (std::int64_t i = 0; i < rows; ++i)
            if (order[i] < 0 || order[i] >= stored_rows)
                refuse("order[" + std::to_string(i) + "] = " + std::to_string(order[i]) + ", but " +
                       std::to_string(stored_rows) + " rows are stored");
    const Table table{type, rows, cols, room(arena, type, rows, cols)};
    return {table, stored, bytes, order, false, nullptr};
}

Table pack_table(Arena &arena, Type type, std::int64_t rows, std::int64_t cols,
                 const std::uint8_t *stored, std::int64_t bytes, const std::int64_t *order,
                 int threads) {
    const Table table = packing_job(arena, type, rows, cols, stored, bytes, order).table;
    // The memory is the arena's, which may be written to.
    std::uint8_t *data = const_cast<std::uint8_t *>(table.data);
    over_panels(table, threads, [&](std::int64_t first, std::int64_t last) {
        pack(type, stored, rows, cols, order, first, last, data + first * panel_bytes(type, cols));
    });
    return table;
}

void check_mlx4(Type type, std::int64_t rows, std::int64_t cols, std::int64_t group) {
    if (!is_mlx4(type)) refuse(std::string("add_mlx4 takes mlx4 types, not ") + type_name(type));
    check_shape(type, rows, cols);
    if ((group != 32 && group != 64 && group != 128) || cols % group)
        refuse("groups of " + std::to_string(group) + " in " + std::to_string(cols) +
               " columns: a group has 32, 64 or 128 inputs, and divides the columns");
}

Table pack_mlx4_table(Arena &arena, Type type, std::int64_t rows, std::int64_t cols,
                      std::int64_t group, const std::uint32_t *words, const std::uint16_t *scales,
                      const std::uint16_t *biases, const std::int64_t *order, int threads) {
    check_mlx4(type, rows, cols, group);
    // In another order: the rows are copied first.
    std::vector<std::uint32_t> moved_words;
    std::vector<std::uint16_t> moved_scales, moved_biases;
    if (order) {
        const std::int64_t n = cols / 8, g = cols / group;
        for (std::int64_t i = 0; i < rows; ++i) {
            if (order[i] < 0 || order[i] >= rows)
                refuse("order[" + std::to_string(i) + "] = " + std::to_string(order[i]) +
                       ", but " + std::to_string(rows) + " rows are stored");
            moved_words.insert(moved_words.end(), words + order[i] * n, words + (order[i] + 1) * n);
            moved_scales.insert(moved_scales.end(), scales + order[i] * g,
                                scales + (order[i] + 1) * g);
            moved_biases.insert(moved_biases.end(), biases + order[i] * g,
                                biases + (order[i] + 1) * g);
        }
        words = moved_words.data();
        scales = moved_scales.data();
        biases = moved_biases.data();
    }
    std::uint8_t *data = room(arena, type, rows, cols);
    const Table table{type, rows, cols, data};
    over_panels(table, threads, [&](std::int64_t first, std::int64_t last) {
        pack_mlx4(type, words, scales, biases, group, rows, cols, first, last,
                  data + first * panel_bytes(type, cols));
    });
    return table;
}

Tables::Tables(int threads) : threads_(threads), packer_(threads) {
    if (threads < 1 || threads > 1024) refuse("threads must be from 1 to 1024");
}

int Tables::add(Table table) {
    nbytes_ += panel_count(table.rows) * panel_bytes(table.type, table.cols);
    tables_.push_back(table);
    return static_cast<int>(tables_.size()) - 1;
}

const Table &Tables::at(std::int64_t number) const {
    if (number < 0 || number >= static_cast<std::int64_t>(tables_.size()))
        refuse("table " + std::to_string(number) + ": there are " +
               std::to_string(tables_.size()));
    return tables_[static_cast<std::size_t>(number)];
}

}  // namespace forwardpass
