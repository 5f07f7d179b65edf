// Packed tables and the memory that they lie in. Knows nothing of Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "memory.h"
#include "packer.h"

namespace forwardpass {

const char *type_name(Type type);
Type type_named(const std::string &name);  // throws std::invalid_argument
bool is_mlx4(Type type);

// `stored` is `bytes` of rows as a file has them; `order` (null: as stored) has `rows` numbers of
// stored rows. Panels are packed by `threads` threads. Throws std::invalid_argument where sizes
// do not agree; then nothing was read. The table lies in the arena.
Table pack_table(Arena &arena, Type type, std::int64_t rows, std::int64_t cols,
                 const std::uint8_t *stored, std::int64_t bytes, const std::int64_t *order,
                 int threads);

// MLX's affine tables. The arrays have rows × cols / 8 words and rows × cols / group scales and
// biases, which the caller has checked by `check_mlx4`. `order` as above.
void check_mlx4(Type type, std::int64_t rows, std::int64_t cols, std::int64_t group);
Table pack_mlx4_table(Arena &arena, Type type, std::int64_t rows, std::int64_t cols,
                      std::int64_t group, const std::uint32_t *words, const std::uint16_t *scales,
                      const std::uint16_t *biases, const std::int64_t *order, int threads);

// The same for a `Packer`: the table, zeros so far, and what is to be packed into it.
PackingJob packing_job(Arena &arena, Type type, std::int64_t rows, std::int64_t cols,
                       const std::uint8_t *stored, std::int64_t bytes, const std::int64_t *order);

class Tables {
  public:
    explicit Tables(int threads);  // 1 or more: how many pack
    Tables(const Tables &) = delete;
    Tables &operator=(const Tables &) = delete;
    int add(Table table);          // its number
    Arena &arena() { return arena_; }
    Packer &packer() { return packer_; }
    const Packer &packer() const { return packer_; }
    const Table &at(std::int64_t number) const;  // throws std::invalid_argument
    std::int64_t nbytes() const { return nbytes_; }
    int threads() const { return threads_; }

  private:
    std::vector<Table> tables_;
    Arena arena_;
    std::int64_t nbytes_ = 0;
    int threads_;
    Packer packer_;  // goes first: it writes to the arena
};

}  // namespace forwardpass
