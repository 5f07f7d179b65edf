// Which tokens may come next under a grammar. Knows nothing of Python.
//
// What a token does without leaving the local level is found once for each place, by a walk through
// the whole vocabulary: an entry. Where the level ends within a token, the rest of the token meets
// what stands around it, which is walked each time: few tokens, and few ways.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "masks_machine.h"
#include "masks_walk.h"
#include "trie.h"

namespace forwardpass {

// Tokens as rising ids, or, where they are many, as one bit for each row of the scores.
struct TokenSet {
    std::vector<std::int32_t> ids;
    std::vector<std::uint32_t> bits;
    std::int64_t count = 0;

    std::vector<std::int32_t> all() const;  // as rising ids
    std::int64_t nbytes() const {
        return static_cast<std::int64_t>((ids.size() + bits.size()) * 4);
    }
};

// Tokens from `begin` to `end` of those in the order of the tree.
struct TokenRun {
    int begin, end, layer;
};

struct Entry {
    std::vector<std::pair<int, TokenSet>> layers;  // tokens that end inside, by rising cost
    TokenSet all;  // of all layers, where they are several and one of them has bits
    int worst = -1;  // the greatest cost of a layer
    std::vector<std::int32_t> doubtful;
    std::vector<std::int32_t> exits;  // nodes of the vocabulary at which the level ends, rising
    // What follows the exits, merged, where that is not much: `merged`. Its root's tokens, those
    // that end with the level, are in `at_exit` instead.
    ByteTree suffixes;
    TokenSet at_exit;
    bool merged = false;

    std::int64_t nbytes() const;
};

// A place to start from: an entry, what stands around it (-1: nothing), and the list of tokens that
// are not legal by way of it (-1: none).
struct Start {
    std::int64_t entry, outer, but;
};

struct MaskAnswer {
    std::int64_t count = 0;          // legal tokens
    int worst = -1;                  // no token costs more than this, whatever the limit
    std::vector<std::int32_t> doubtful;  // rising; not legal as far as is known
};

// Not for two threads at once: what is called while a call goes on throws std::runtime_error, the
// adding of states, moves, outers and tokens apart.
class Masks {
  public:
    Masks(const Trie &trie, Grammar &grammar, std::int64_t most_bytes);
    Masks(const Masks &) = delete;
    Masks &operator=(const Masks &) = delete;

    MaskMachine machine;
    int add_tokens(const std::vector<std::int64_t> &ids);
    // Shares an entry, or a list of tokens, of other masks over the same trie.
    int adopt_entry(const Masks &other, std::int64_t entry);
    int adopt_tokens(const Masks &other, std::int64_t list);

    int entry_state(std::int64_t state);
    int entry_text(std::int64_t text);
    int entry_name(std::int64_t text, std::int64_t state, const std::string &raw);

    // Sets the bits in `out` (32 ids a word; cleared first) of the tokens that can be ended within
    // `limit` more tokens (-1: any). Where a callback throws, `out` is left half done.
    MaskAnswer mask(const std::vector<Start> &starts, std::int64_t limit, std::uint32_t *out);
    // Least tokens to the end after each of these, or -1.
    std::vector<int> costs(const std::vector<Start> &starts, const std::vector<std::int64_t> &ids);
    // Where an entry's level ends: the bytes to there, and the tokens that begin with them.
    std::vector<std::pair<std::string, std::vector<std::int32_t>>> exit_texts(
        std::int64_t entry) const;

    const Trie &trie() const { return trie_; }
    int entries() const { return static_cast<int>(entries_.size()); }

  private:
    class Busy;

    int entry(const std::string &key, const Item &item, const std::string &prefix);
    Entry walked(const Item &item, const std::string &prefix);
    void sort_into_layers(const std::map<int, int> &by_cost,
                          const std::vector<std::int64_t> &counts, Entry &entry);
    void put_runs(std::vector<TokenSet> &sets) const;
    void scan_runs(std::vector<TokenSet> &sets);
    void merge_exits(Entry &entry) const;
    bool make_room(TokenSet &set, int dense) const;
    void check(const Start &start) const;
    template <class Sink> void give(const Start &start, Sink &sink);
    template <class Sink> void give_without(const Start &start, Sink &sink);

    const Trie &trie_;
    std::vector<std::shared_ptr<const Entry>> entries_;
    std::unordered_map<std::string, int> places_;
    std::vector<std::shared_ptr<const std::vector<std::int32_t>>> lists_;
    int popped_;  // the move that ends the level
    WalkScratch scratch_;
    // While an entry is made: what it has found, and where that is much, the layer of each id.
    std::vector<TokenRun> runs_;
    std::vector<std::int32_t> layers_;
    bool busy_ = false;
};

// A tree of what follows the nodes in a tree: with what begins at each of them at its root.
ByteTree merged_subtrees(const ByteTree &tree, const std::vector<std::int32_t> &nodes);

}  // namespace forwardpass
