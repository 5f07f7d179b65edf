// The making of entries.

#include <algorithm>

#include "masks.h"

namespace forwardpass {
namespace {

constexpr std::int64_t most_merged = 50'000;  // nodes behind all exits together

void set_bit(std::vector<std::uint32_t> &bits, std::int32_t id) {
    bits[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << id % 32;
}

// Runs of tokens, by layer: 0 for none, and otherwise a number for each cost that comes up. Nodes
// come in preorder, and neighbours mostly cost the same.
struct EntrySink {
    const ByteTree &tree;
    std::vector<TokenRun> &runs;
    Entry &entry;
    std::map<int, int> by_cost{};
    std::vector<std::int64_t> counts{0};  // tokens of each layer
    int cost = no_cost, begin = 0, end = 0;  // the run: of the tree's ids

    void ends(const ByteTree &, int node, int node_cost) {
        const int first = tree.first[node], behind = tree.first[node + 1];
        if (first != end || node_cost != cost) {
            if (first == behind) return;
            put_down();
            cost = node_cost, begin = first;
        }
        end = behind;
    }
    void put_down() {
        if (begin == end) return;
        const int next = static_cast<int>(counts.size());
        const int layer = by_cost.emplace(cost, next).first->second;
        if (layer == next) counts.push_back(0);
        counts[static_cast<std::size_t>(layer)] += end - begin;
        runs.push_back({begin, end, layer});
        begin = end;
    }
    void doubt(const ByteTree &, int node) {
        entry.doubtful.insert(entry.doubtful.end(), tree.ids.begin() + tree.first[node],
                              tree.ids.begin() + tree.first[tree.ends[node]]);
    }
    void exit(int node) { entry.exits.push_back(node); }
};

}  // namespace

std::int64_t Entry::nbytes() const {
    std::int64_t bytes = static_cast<std::int64_t>(sizeof(Entry));
    for (const auto &layer : layers)
        bytes += static_cast<std::int64_t>(sizeof layer) + layer.second.nbytes();
    return bytes + all.nbytes() + at_exit.nbytes() + suffixes.nbytes() +
           static_cast<std::int64_t>((doubtful.size() + exits.size()) * 4);
}

Entry Masks::walked(const Item &item, const std::string &prefix) {
    Entry out;
    runs_.clear();
    EntrySink sink{trie_.tree(), runs_, out};
    Walk walk(machine, trie_.tree(), prefix, scratch_, sink);
    walk.from_item(item);
    sink.put_down();
    std::sort(out.doubtful.begin(), out.doubtful.end());
    out.doubtful.erase(std::unique(out.doubtful.begin(), out.doubtful.end()), out.doubtful.end());
    sort_into_layers(sink.by_cost, sink.counts, out);
    merge_exits(out);
    return out;
}

// From runs of tokens to a set for each layer, by rising cost.
void Masks::sort_into_layers(const std::map<int, int> &by_cost,
                             const std::vector<std::int64_t> &counts, Entry &entry) {
    std::vector<TokenSet> sets(counts.size());
    bool dense = false;
    for (std::size_t i = 0; i < sets.size(); ++i) {
        sets[i].count = counts[i];
        dense |= make_room(sets[i], 64);
    }
    if (dense) scan_runs(sets);
    else put_runs(sets);
    for (const auto &[cost, layer] : by_cost) {
        TokenSet &set = sets[static_cast<std::size_t>(layer)];
        entry.layers.emplace_back(cost, std::move(set));
        entry.worst = cost;
    }
    if (!dense || entry.layers.size() < 2) return;
    entry.all.bits.resize(static_cast<std::size_t>(trie_.words()));
    for (const auto &[cost, set] : entry.layers) {
        entry.all.count += set.count;
        for (std::size_t i = 0; i < set.bits.size(); ++i) entry.all.bits[i] |= set.bits[i];
        for (const std::int32_t id : set.ids) set_bit(entry.all.bits, id);
    }
}

// Few tokens: each goes to its set, which is put in order afterwards.
void Masks::put_runs(std::vector<TokenSet> &sets) const {
    const std::vector<std::int32_t> &ids = trie_.tree().ids;
    for (const TokenRun &run : runs_) {
        std::vector<std::int32_t> &set = sets[static_cast<std::size_t>(run.layer)].ids;
        set.insert(set.end(), ids.begin() + run.begin, ids.begin() + run.end);
    }
    for (TokenSet &set : sets) std::sort(set.ids.begin(), set.ids.end());
}

// Many: the layer of each id is written down, and all ids are gone through in order.
void Masks::scan_runs(std::vector<TokenSet> &sets) {
    const std::vector<std::int32_t> &ids = trie_.tree().ids;
    layers_.assign(static_cast<std::size_t>(trie_.size()), 0);
    for (const TokenRun &run : runs_)
        for (int i = run.begin; i < run.end; ++i)
            layers_[static_cast<std::size_t>(ids[static_cast<std::size_t>(i)])] = run.layer;
    for (int id = 0; id < trie_.size(); ++id) {
        TokenSet &set = sets[static_cast<std::size_t>(layers_[static_cast<std::size_t>(id)])];
        if (!set.bits.empty()) set_bit(set.bits, id);
        else if (set.count != 0) set.ids.push_back(id);
    }
}

void Masks::merge_exits(Entry &entry) const {
    const ByteTree &tree = trie_.tree();
    std::int64_t nodes = 0;
    for (const int exit : entry.exits) nodes += tree.ends[exit] - exit;
    if (entry.exits.empty() || nodes >= most_merged) return;
    entry.merged = true;
    ByteTree &suffixes = entry.suffixes = merged_subtrees(tree, entry.exits);
    const int at_root = suffixes.first[1];
    // Setting single bits takes longer than going through all words from about here on.
    entry.at_exit.count = at_root;
    const bool dense = make_room(entry.at_exit, 256);
    for (int i = 0; i < at_root; ++i) {
        if (dense) set_bit(entry.at_exit.bits, suffixes.ids[i]);
        else entry.at_exit.ids.push_back(suffixes.ids[i]);
    }
    suffixes.ids.erase(suffixes.ids.begin(), suffixes.ids.begin() + at_root);
    for (std::size_t i = 1; i < suffixes.first.size(); ++i) suffixes.first[i] -= at_root;
}

// For `count` tokens: bits where they are more than a `dense`th part of all. Says whether they are.
bool Masks::make_room(TokenSet &set, int dense) const {
    if (set.count * dense > trie_.size()) set.bits.resize(static_cast<std::size_t>(trie_.words()));
    else set.ids.reserve(static_cast<std::size_t>(set.count));
    return !set.bits.empty();
}

}  // namespace forwardpass
