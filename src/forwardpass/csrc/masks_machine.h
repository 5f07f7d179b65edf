// A grammar as far as it has been asked: a pushdown machine over bytes, its tables filled on the
// way. Knows nothing of Python.
//
// A state is a place in the structure of a text; a text state one inside a string of it. A byte
// leads from a state to a move: the set of items that may stand next. What stands around a local
// level once that has ended is an outer: a move on the level further out.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "masks_limits.h"
#include "text_states.h"

namespace forwardpass {

constexpr int inside = -2;  // as an outer: nothing is known of what stands around

// What fills the tables. What these throw passes through, and the tables stay as they were. They
// may add to the machine that calls them.
class Grammar : public LanguageSource {
  public:
    virtual std::int64_t move(int state, int byte) = 0;  // a move, or dead
    virtual std::int64_t name(int state, std::string_view raw) = 0;  // a move, or dead
};

enum class ItemKind : std::uint8_t { state, text, name, popped, doubt, call };
constexpr int item_kinds = 6;

struct Item {
    ItemKind kind = ItemKind::doubt;
    int a = 0;  // the state; the text state; or the cost of a doubt
    int b = 0;  // of a text or call, the move that stands behind it; of a name, the state it is in
    bool operator==(const Item &) const = default;
};

struct Move {
    int begin = 0, end = 0;  // its items
    int cost = 0;            // the least of them; that of doubts only where there is nothing else
    bool certain = false;    // whether there is more than doubt
    bool named = false;      // whether there is a name in it
};

struct Outer {
    int move = 0, cost = 0, parent = -1;
};

class MaskMachine {
  public:
    // `byte_costs`: tokens that a byte by itself takes.
    MaskMachine(Grammar &grammar, std::int64_t most_bytes,
                const std::array<int, 256> &byte_costs);
    MaskMachine(const MaskMachine &) = delete;
    MaskMachine &operator=(const MaskMachine &) = delete;

    // These throw std::invalid_argument for what is out of range, std::runtime_error at the limit.
    int add_state(bool pop, std::int64_t cost, std::string_view first);
    int add_move(const std::vector<std::array<std::int64_t, 3>> &items);
    int add_outer(std::int64_t move, std::int64_t cost, std::int64_t parent);
    // What stands around a call: the move behind it, and around that what was around before.
    int pushed(int move, int outer);
    void check_text(std::int64_t text) const;
    void check_state(std::int64_t state) const;
    void check_outer(std::int64_t outer) const;

    int states() const { return static_cast<int>(states_.size()); }
    int moves() const { return static_cast<int>(moves_.size()); }

    // Where a byte leads. Rows stay where they are; all else may have moved after each of these.
    int move(int state, int byte) {
        const std::int32_t *row = states_[state].row.get();
        return row != nullptr && row[byte] != unknown ? row[byte] : ask_move(state, byte);
    }
    int name(int state, const std::string &raw);

    Item item(int number) const { return items_[number]; }
    Move move_of(int number) const { return moves_[number]; }
    Outer outer(int number) const { return outers_[number]; }
    bool pops(int state) const { return states_[state].pop; }
    // Least tokens from an item to the end of its level: all of it, or what comes on top of the
    // cost of its text.
    int rest_cost(const Item &item) const;
    int cost(const Item &item);
    int outer_cost(int outer) const { return outer < 0 ? 0 : outers_[outer].cost; }

    Budget budget;
    TextStates texts;

  private:
    struct State {
        bool pop;
        int cost;
        std::array<std::uint64_t, 4> first;
        std::unique_ptr<std::int32_t[]> row;
    };

    int ask_move(int state, int byte);
    int known_move(std::int64_t move, const char *from) const;
    Item known_item(const std::array<std::int64_t, 3> &item);

    Grammar &grammar_;
    std::vector<State> states_;
    std::vector<Item> items_;
    std::vector<Move> moves_;
    std::vector<Outer> outers_;
    std::unordered_map<std::uint64_t, int> pushed_;  // by move and outer
    std::unordered_map<std::string, int> names_;
};

}  // namespace forwardpass
