// From the bytes of a model file to packed tables: 16 output rows interleaved. Knows nothing of Python.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace forwardpass {

// Bytes of one row of `cols` elements as a file stores it.
std::int64_t stored_row_bytes(Type type, std::int64_t cols);

// Panels [first, last) of a table of rows × cols, written to out (panel `first` at its beginning).
// `stored` are the rows as the file has them; row i of the table is stored row order[i] (null: i).
// Not for mlx4.
void pack(Type type, const std::uint8_t *stored, std::int64_t rows, std::int64_t cols,
          const std::int64_t *order, std::int64_t first, std::int64_t last, std::uint8_t *out);

// The same of MLX's affine 4-bit tables: words of eight 4-bit integers (lowest bits first), and
// 16-bit scales and biases, one of each for `group` (32, 64 or 128) inputs: scale · q + bias.
void pack_mlx4(Type type, const std::uint32_t *words, const std::uint16_t *scales,
               const std::uint16_t *biases, std::int64_t group, std::int64_t rows,
               std::int64_t cols, std::int64_t first, std::int64_t last, std::uint8_t *out);

}  // namespace forwardpass
