// What temperature and truncations leave of a row, stage by stage: sampling/chain.py's `_Narrowing`
// and truncations.py, where every token left has a rank and only the first ones are at hand.
#pragma once

#include "sampler.h"

namespace forwardpass {

// Every stage says whether it could be decided; after a false nothing here means anything.
class Narrowing {
  public:
    // `exact`: with float64 sums, which alone reach beyond the row's sorted part.
    Narrowing(Row &row, const SamplingRules &rules, RowScratch &scratch, bool exact);

    // `xtc` is the number that says whether XTC acts; `left` takes what each stage left.
    bool run(double xtc, std::vector<StageLeft> &left);
    bool draw(double random);
    // The log probability after the stages of an id with that score; -inf where it cannot come.
    bool logprob(Candidate one, double &out) const;
    bool first(std::int64_t count, std::vector<std::pair<std::int64_t, double>> &out) const;

    Candidate token{};
    std::int64_t rank = 0;
    double sampled_logprob = 0, begin = 0, end = 0;

  private:
    bool temper(double temperature);
    bool apply(const StageRule &rule, double xtc);
    bool top_n_sigma(double n);
    bool top_k(std::int64_t k);
    bool top_p(double p);
    bool min_p(double m);
    bool xtc(double threshold);
    bool cut_at(double from, double surely, std::int64_t end);
    bool measure_faint();
    bool measure();
    void clip();
    double tempered(double score) const { return (score - base_) / temperature_; }
    double rounding(std::int64_t rank) const;
    double mass(std::int64_t i) const { return ahead_[size(i)] - ahead_[size(begin_)]; }
    std::int64_t at_hand(std::int64_t end) const { return end < sorted_ ? end : sorted_; }
    static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }
    bool precise() const;
    double row_weight();
    template <class Reaches> static double first_score(double low, double high, Reaches reaches);

    Row &row_;
    const SamplingRules &rules_;
    const bool exact_;
    const std::int64_t sorted_;  // tokens at hand
    // Of these, scores and weights; ahead_[i] weighs the first i of them that are left.
    std::vector<double> &scores_, &exponents_, &weights_, &ahead_;
    std::int64_t begin_ = 0, end_, faint_;  // ranks of what is left; from `faint_` on none can come
    bool whole_ = true;   // nothing was left out at the end
    double cut_ = 0;      // else, where the end is not at hand: the last score
    double faint_from_ = 0;
    double temperature_ = 1, base_ = 0;
    double row_weight_ = 0;  // at this temperature; 0: not known
    Sum all_, held_;  // weights of what the last temperature was for, and of what is left of it
};

}  // namespace forwardpass
