#include "masks.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace forwardpass {
namespace {

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }

bool has_bit(const std::uint32_t *words, std::int32_t id) { return words[id / 32] >> id % 32 & 1; }

// Bits of the tokens within a limit, counted as they are set, as long as that is for free.
struct MaskSink {
    std::uint32_t *words;
    int size;  // of words
    int limit;
    int worst = -1;
    std::vector<std::int32_t> doubtful;
    std::int64_t count = 0;
    bool cleared = false, counted = true;

    void clear() {
        if (!cleared) std::fill_n(words, size, 0u);
        cleared = true;
    }
    void set(const std::int32_t *begin, const std::int32_t *end) {
        clear();
        for (; begin != end; ++begin) {
            const std::uint32_t bit = std::uint32_t{1} << *begin % 32;
            std::uint32_t &word = words[*begin / 32];
            count += !(word & bit);
            word |= bit;
        }
    }
    void put(const TokenSet &tokens) {
        const std::uint32_t *bits = tokens.bits.data();
        if (tokens.bits.empty()) return set(tokens.ids.data(), tokens.ids.data() + tokens.count);
        if (!cleared) {
            std::copy_n(bits, size, words);
            cleared = true;
            count = tokens.count;
            return;
        }
        for (int i = 0; i < size; ++i) words[i] |= bits[i];
        counted = false;
    }
    void ends(const ByteTree &tree, int node, int cost) {
        const int begin = tree.first[node], end = tree.first[node + 1];
        if (begin == end) return;
        worst = std::max(worst, cost);
        if (cost <= limit) set(tree.ids.data() + begin, tree.ids.data() + end);
    }
    void doubt(const ByteTree &tree, int node) {
        doubtful.insert(doubtful.end(), tree.ids.begin() + tree.first[node],
                        tree.ids.begin() + tree.first[tree.ends[node]]);
    }
    void exit(int) {}
    void tokens(const TokenSet &set, int cost) {
        if (set.count == 0) return;
        worst = std::max(worst, cost);
        if (cost <= limit) put(set);
    }
    void inside(const Entry &entry, int around) {
        const int most = sum_of_costs(entry.worst, around);
        if (entry.all.count != 0 && most <= limit) return tokens(entry.all, most);
        for (const auto &[cost, set] : entry.layers) tokens(set, sum_of_costs(cost, around));
    }
    void doubts(const std::vector<std::int32_t> &ids) {
        doubtful.insert(doubtful.end(), ids.begin(), ids.end());
    }
};

// Least costs by id.
struct CostSink {
    std::vector<std::int32_t> costs;

    void put(std::int32_t id, int cost) {
        std::int32_t &known = costs[static_cast<std::size_t>(id)];
        known = std::min(known, cost);
    }
    void ends(const ByteTree &tree, int node, int cost) {
        for (int i = tree.first[node]; i < tree.first[node + 1]; ++i) put(tree.ids[i], cost);
    }
    void doubt(const ByteTree &, int) {}
    void exit(int) {}
    void tokens(const TokenSet &set, int cost) {
        for (const std::int32_t id : set.all()) put(id, cost);
    }
    void inside(const Entry &entry, int around) {
        for (const auto &[cost, set] : entry.layers) tokens(set, sum_of_costs(cost, around));
    }
    void doubts(const std::vector<std::int32_t> &) {}
};

// Adds in parallel, without an instruction that counts; compilers make vectors of it.
std::int64_t count_bits(const std::uint32_t *words, int size) {
    std::uint32_t count = 0;
    for (int i = 0; i < size; ++i) {
        std::uint32_t x = words[i];
        x -= x >> 1 & 0x55555555u;
        x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
        x = (x + (x >> 4)) & 0x0f0f0f0fu;
        x += x >> 8;
        count += (x + (x >> 16)) & 0x3fu;
    }
    return count;
}

// One token for each byte that is one.
std::array<int, 256> byte_costs(const Trie &trie) {
    std::array<int, 256> out;
    out.fill(most_cost);
    const ByteTree &tree = trie.tree();
    for (int node = 1; node < tree.nodes(); node = tree.ends[node])
        if (tree.first[node] < tree.first[node + 1]) out[tree.bytes[node]] = 1;
    return out;
}

int limit_of(std::int64_t limit) {
    if (limit < -1) refuse("limit: a number of tokens is wanted, or -1");
    return limit < 0 || limit > most_cost ? most_cost : static_cast<int>(limit);
}

}  // namespace

std::vector<std::int32_t> TokenSet::all() const {
    std::vector<std::int32_t> out = ids;
    for (std::size_t i = 0; i < bits.size() * 32; ++i)
        if (bits[i / 32] >> i % 32 & 1) out.push_back(static_cast<std::int32_t>(i));
    return out;
}

// One call at a time: a callback, or another thread while that runs, must not begin a second.
class Masks::Busy {
  public:
    explicit Busy(bool &busy) : busy_(busy) {
        if (busy_) throw std::runtime_error("a mask is being made: one at a time");
        busy_ = true;
    }
    ~Busy() { busy_ = false; }
    Busy(const Busy &) = delete;
    Busy &operator=(const Busy &) = delete;

  private:
    bool &busy_;
};

Masks::Masks(const Trie &trie, Grammar &grammar, std::int64_t most_bytes)
    : machine(grammar, most_bytes, byte_costs(trie)), trie_(trie),
      popped_(machine.add_move({{static_cast<std::int64_t>(ItemKind::popped), 0, 0}})) {}

int Masks::add_tokens(const std::vector<std::int64_t> &ids) {
    std::vector<std::int32_t> list;
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= trie_.size())
            refuse("token " + std::to_string(id) + " has none of the " +
                   std::to_string(trie_.size()) + " rows of scores");
        list.push_back(static_cast<std::int32_t>(id));
    }
    machine.budget.take(static_cast<std::int64_t>(sizeof list + list.size() * 4));
    lists_.push_back(std::make_shared<const std::vector<std::int32_t>>(std::move(list)));
    return static_cast<int>(lists_.size()) - 1;
}

int Masks::adopt_entry(const Masks &other, std::int64_t entry) {
    if (&other.trie_ != &trie_) refuse("an entry over another trie");
    other.check({entry, -1, -1});
    entries_.push_back(other.entries_[static_cast<std::size_t>(entry)]);
    return entries() - 1;
}

int Masks::adopt_tokens(const Masks &other, std::int64_t list) {
    if (&other.trie_ != &trie_) refuse("tokens of another trie");
    if (list < 0 || list >= static_cast<std::int64_t>(other.lists_.size()))
        refuse("list of tokens " + std::to_string(list) + " is none of the others");
    lists_.push_back(other.lists_[static_cast<std::size_t>(list)]);
    return static_cast<int>(lists_.size()) - 1;
}

int Masks::entry_state(std::int64_t state) {
    machine.check_state(state);
    return entry(std::to_string(state) + 's', {ItemKind::state, static_cast<int>(state), 0}, "");
}

int Masks::entry_text(std::int64_t text) {
    machine.check_text(text);
    const int place = static_cast<int>(text);
    return entry(std::to_string(place) + 't', {ItemKind::text, place, popped_}, "");
}

int Masks::entry_name(std::int64_t text, std::int64_t state, const std::string &raw) {
    machine.check_state(state);
    machine.check_text(text);
    const int place = static_cast<int>(text);
    const Item item{ItemKind::name, place, static_cast<int>(state)};
    return entry(std::to_string(place) + ',' + std::to_string(state) + 'n' + raw, item, raw);
}

int Masks::entry(const std::string &key, const Item &item, const std::string &prefix) {
    if (const auto found = places_.find(key); found != places_.end()) return found->second;
    const Busy busy(busy_);
    Entry made = walked(item, prefix);
    machine.budget.take(made.nbytes() + static_cast<std::int64_t>(key.size()) + key_bytes);
    entries_.push_back(std::make_shared<const Entry>(std::move(made)));
    return places_[key] = entries() - 1;
}

void Masks::check(const Start &start) const {
    if (start.entry < 0 || start.entry >= entries())
        refuse("entry " + std::to_string(start.entry) + " is none of the " +
               std::to_string(entries()));
    machine.check_outer(start.outer);
    if (start.but < -1 || start.but >= static_cast<std::int64_t>(lists_.size()))
        refuse("list of tokens " + std::to_string(start.but) + " is none of the " +
               std::to_string(lists_.size()));
}

// All that may come by way of one start goes to the sink.
template <class Sink> void Masks::give(const Start &start, Sink &sink) {
    // No entry is added while this goes on.
    const Entry &entry = *entries_[static_cast<std::size_t>(start.entry)];
    const int outer = static_cast<int>(start.outer), around = machine.outer_cost(outer);
    sink.inside(entry, around);
    sink.doubts(entry.doubtful);
    const ByteTree &tree = entry.merged ? entry.suffixes : trie_.tree();
    const std::string no_prefix;
    Walk walk(machine, tree, no_prefix, scratch_, sink);
    if (!entry.merged) {
        for (const int exit : entry.exits) walk.from_exit(exit, outer);
        return;
    }
    const auto [cost, doubt] = walk.from_exit(0, outer);
    if (cost < no_cost) sink.tokens(entry.at_exit, cost);
    if (doubt) sink.doubts(entry.at_exit.all());
}

// As `give`, but for the start's list of tokens.
template <class Sink> void Masks::give_without(const Start &start, Sink &sink) {
    const std::size_t words = static_cast<std::size_t>(sink.size);
    TokenSet own;
    own.bits.resize(words);
    Sink without{own.bits.data(), sink.size, sink.limit, sink.worst, {}};
    give(start, without);
    without.clear();
    std::vector<std::uint32_t> taken(words);
    for (const std::int32_t id : *lists_[static_cast<std::size_t>(start.but)]) {
        taken[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << id % 32;
        own.bits[static_cast<std::size_t>(id) / 32] &= ~(std::uint32_t{1} << id % 32);
    }
    own.count = count_bits(own.bits.data(), sink.size);
    sink.put(own);
    for (const std::int32_t id : without.doubtful)
        if (!has_bit(taken.data(), id)) sink.doubtful.push_back(id);
    sink.worst = without.worst;
}

MaskAnswer Masks::mask(const std::vector<Start> &starts, std::int64_t limit, std::uint32_t *out) {
    const Busy busy(busy_);
    for (const Start &start : starts) check(start);
    MaskSink sink{out, trie_.words(), limit_of(limit), -1, {}};
    for (const Start &start : starts) {
        if (start.but < 0) give(start, sink);
        else give_without(start, sink);
    }
    sink.clear();
    MaskAnswer answer{sink.counted ? sink.count : count_bits(out, sink.size), sink.worst, {}};
    for (const std::int32_t id : sink.doubtful)
        if (!has_bit(out, id)) answer.doubtful.push_back(id);
    std::sort(answer.doubtful.begin(), answer.doubtful.end());
    answer.doubtful.erase(std::unique(answer.doubtful.begin(), answer.doubtful.end()),
                          answer.doubtful.end());
    return answer;
}

std::vector<int> Masks::costs(const std::vector<Start> &starts,
                              const std::vector<std::int64_t> &ids) {
    const Busy busy(busy_);
    for (const Start &start : starts) check(start);
    const std::size_t size = static_cast<std::size_t>(trie_.size());
    std::vector<std::int32_t> least(size, no_cost);
    for (const Start &start : starts) {
        CostSink sink{std::vector<std::int32_t>(size, no_cost)};
        give(start, sink);
        if (start.but >= 0)
            for (const std::int32_t id : *lists_[static_cast<std::size_t>(start.but)])
                sink.costs[static_cast<std::size_t>(id)] = no_cost;
        for (std::size_t i = 0; i < size; ++i) least[i] = std::min(least[i], sink.costs[i]);
    }
    std::vector<int> out;
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= trie_.size()) refuse("ids: rows of the scores are wanted");
        const int cost = least[static_cast<std::size_t>(id)];
        out.push_back(cost == no_cost ? -1 : cost);
    }
    return out;
}

std::vector<std::pair<std::string, std::vector<std::int32_t>>> Masks::exit_texts(
    std::int64_t entry) const {
    check({entry, -1, -1});
    const ByteTree &tree = trie_.tree();
    std::vector<std::pair<std::string, std::vector<std::int32_t>>> out;
    for (const int exit : entries_[static_cast<std::size_t>(entry)]->exits)
        out.emplace_back(trie_.text(exit),
                         std::vector<std::int32_t>(
                             tree.ids.begin() + tree.first[exit],
                             tree.ids.begin() + tree.first[tree.ends[exit]]));
    return out;
}

}  // namespace forwardpass
