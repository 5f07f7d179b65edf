// JSON strings as an automaton over bytes. A language of texts says which code points may come next
// and which language each leads to; the bytes of raw UTF-8 and of escapes between them are followed
// here. Each state can still reach the closing quote; a surrogate alone never passes.
//
// Source: RFC 8259 section 7; Unicode 15, table 3-7 (well-formed UTF-8). The same automaton in
// Python: constraint/strings.py.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "masks_limits.h"

namespace forwardpass {

constexpr int closed = 0;  // the text state behind the closing quote

// What a language says of itself: whether the text may end, and which code points may come next, as
// rising ranges (first, last, the language they lead to), without surrogates.
struct LanguageFacts {
    bool nullable = false;
    std::vector<std::array<std::int64_t, 3>> ranges;
    std::int64_t escaped = 0;  // the language of what may be written with an escape: a part of it
};

// Each language is asked once for each of these; it has a word, as do those it leads to.
class LanguageSource {
  public:
    virtual ~LanguageSource() = default;
    virtual LanguageFacts language(std::int64_t language) = 0;
    virtual std::int64_t language_cost(std::int64_t language) = 0;  // tokens to behind the quote
};

// none: refused. hexes: after \u. backslash, letter_u, low: in the second half of a pair. tail:
// within raw UTF-8. rest: the same where all that may follow leads to one language.
enum class TextKind : std::uint8_t {
    none, closed, between, escape, hexes, backslash, letter_u, low, tail, rest
};

// A place in a string. Of a rest, the language is the one behind the character.
struct TextPlace {
    TextKind kind = TextKind::none;
    int language = 0;
    int count = 0;  // digits that are written; of a tail or rest, bytes that are not
    int value = 0;  // of the digits; of a tail, the least code point with the bytes so far
    int high = 0;   // the first half of a pair
};

class TextStates {
  public:
    // `byte_costs`: tokens that a byte by itself takes.
    TextStates(LanguageSource &source, Budget &budget, const std::array<int, 256> &byte_costs);

    // After some bytes of one character. Throws std::invalid_argument where they are none.
    int state(std::int64_t language, std::string_view written);
    int size() const { return static_cast<int>(states_.size()); }

    // Rows stay where they are.
    const std::int32_t *row(int state) const { return states_[state].row.get(); }
    int after(int state, int byte) {
        const std::int32_t known = states_[state].row[byte];
        return known != unknown ? known : ask_after(state, byte);
    }
    int known_cost(int state) const { return states_[state].cost; }  // or unknown
    // An upper bound of the tokens to behind the quote.
    int cost(int state) {
        const int known = states_[state].cost;
        return known != unknown ? known : ask_cost(state);
    }

  private:
    struct State {
        std::unique_ptr<std::int32_t[]> row;
        int cost = unknown;
        TextPlace place;
    };
    struct Range {
        int first, last, language;
    };
    struct Language {
        std::int64_t number = 0;
        bool asked = false, nullable = false;
        std::vector<Range> ranges;
        int escaped = 0;
        int cost = unknown;
    };

    int ask_after(int state, int byte);
    int ask_cost(int state);
    int numbered(const TextPlace &place);
    int language_of(std::int64_t number);
    const Language &known(int language);
    int language_cost(int language);

    TextPlace step(const TextPlace &at, int byte);
    TextPlace at_character(int language, int byte);
    TextPlace character(int language, int code);
    TextPlace raw(int language, int start, int more);
    TextPlace tail(const TextPlace &at, int byte);
    TextPlace hexes(int language, int digits, int value);
    TextPlace low(int language, int high, int digits, int value);
    const Range *last_from(int language, int code);
    bool reaches(int language, int first, int last);

    LanguageSource &source_;
    Budget &budget_;
    const std::array<int, 256> byte_costs_;
    std::vector<State> states_;
    std::unordered_map<std::uint64_t, int> numbers_;  // of the states
    std::deque<Language> languages_;                  // which stay where they are
    std::unordered_map<std::int64_t, int> places_;    // of the languages
};

}  // namespace forwardpass
