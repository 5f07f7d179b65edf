// A text as few tokens. Knows nothing of Python.
#pragma once

#include <string_view>
#include <vector>

#include "trie.h"

namespace forwardpass {

// The fewest tokens whose texts, joined, are this text; of equally many, those whose first one is
// longest, and so on; of equal texts, the lowest id. Throws std::invalid_argument, naming the byte
// at which it comes to an end, where there are none.
std::vector<int> segment(const Trie &trie, std::string_view text);
std::int64_t segment_count(const Trie &trie, std::string_view text);

}  // namespace forwardpass
