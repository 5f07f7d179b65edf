#include "sampler_stages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace forwardpass {
namespace {

// As in sampling/truncations.py and stages.py.
constexpr double tolerance = 1e-12;
constexpr double faintest = -700;

constexpr double lowest = -std::numeric_limits<double>::max();

// The order of float64 as whole numbers, and back.
std::uint64_t wide_key(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | std::uint64_t{1} << 63;
}

double wide_of(std::uint64_t key) {
    const std::uint64_t bits = key >> 63 ? key & ~(std::uint64_t{1} << 63) : ~key;
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

}  // namespace

Narrowing::Narrowing(Row &row, const SamplingRules &rules, RowScratch &scratch, bool exact)
    : row_(row), rules_(rules), exact_(exact),
      sorted_(static_cast<std::int64_t>(row.best.size())), scores_(scratch.best),
      exponents_(scratch.best_exponents), weights_(scratch.best_weights),
      ahead_(scratch.ahead_of), end_(row.reachable), faint_(row.reachable) {
    scores_.resize(size(sorted_));
    ahead_.resize(size(sorted_ + 1));
    for (std::int64_t i = 0; i < sorted_; ++i) scores_[size(i)] = row.best[size(i)].score;
}

// What the plain way's sums, one after another, may be off by at a rank, and exp's last digits.
double Narrowing::rounding(std::int64_t rank) const {
    return 2e-14 + 4e-16 * static_cast<double>(rank + 64);
}

// The lowest score that reaches, which all above it do; `high` does.
template <class Reaches>
double Narrowing::first_score(double low, double high, Reaches reaches) {
    if (reaches(low)) return low;
    std::uint64_t not_yet = wide_key(low), surely = wide_key(high);
    while (surely - 1 > not_yet) {
        const std::uint64_t middle = not_yet + (surely - not_yet) / 2;
        (reaches(wide_of(middle)) ? surely : not_yet) = middle;
    }
    return wide_of(surely);
}

bool Narrowing::run(double xtc, std::vector<StageLeft> &left) {
    const std::vector<StageRule> &stages = rules_.stages;
    const bool first = stages.front().kind == StageKind::temperature;
    if (!temper(first ? rules_.temperature : 1)) return false;
    for (const StageRule &rule : stages) {
        const bool tempers = rule.kind == StageKind::temperature;
        if (tempers && !first && !temper(rules_.temperature)) return false;
        if (!tempers && rule.acts && !apply(rule, xtc)) return false;
        const std::int64_t reachable = std::min(end_, faint_) - begin_;
        const double best = weights_[size(begin_)] / all_.value;
        left.push_back({reachable, std::min(held_.value / all_.value, 1.0),
                        row_.best[size(begin_)].id, best});
    }
    return precise();
}

// Whether what is reported of masses is right to far less than a millionth.
bool Narrowing::precise() const {
    return all_.error <= 5e-6 * all_.value && held_.error <= 5e-6 * held_.value;
}

bool Narrowing::apply(const StageRule &rule, double xtc_number) {
    const bool by_score = rule.kind == StageKind::top_n_sigma || rule.kind == StageKind::top_k;
    if (!by_score) clip();
    switch (rule.kind) {
        case StageKind::top_n_sigma: return top_n_sigma(rule.value) && measure();
        case StageKind::top_k: return top_k(static_cast<std::int64_t>(rule.value)) && measure();
        case StageKind::top_p: return top_p(rule.value) && measure();
        case StageKind::min_p: return min_p(rule.value) && measure();
        case StageKind::xtc:
            return xtc_number >= rule.value || (xtc(rules_.xtc_threshold) && measure());
        case StageKind::temperature:
        case StageKind::typical_p: break;
    }
    return false;
}

bool Narrowing::temper(double temperature) {
    if (begin_ > 0 && end_ > sorted_) return false;
    if (!(temperature >= 1e-290 && temperature <= 1e290)) return false;  // or its inverse overflows
    temperature_ = temperature;
    base_ = scores_[size(begin_)];
    row_.weigh(scores_, sorted_, base_, temperature, exponents_, weights_);
    double passed = 0;
    for (std::int64_t i = 0; i < sorted_; ++i) {
        ahead_[size(i)] = passed;
        if (i >= begin_) passed += weights_[size(i)];
    }
    ahead_[size(sorted_)] = passed;
    all_ = {0, -1};
    row_weight_ = 0;
    if (!measure_faint() || !measure()) return false;
    all_ = held_;
    return true;
}

// From which rank on tokens are too faint to come.
bool Narrowing::measure_faint() {
    const auto can_come = [&](double score) { return tempered(score) >= faintest; };
    const std::int64_t near = at_hand(end_);
    const auto first = scores_.begin();
    faint_ = std::partition_point(first + begin_, first + near, can_come) - first;
    if (faint_ < near || near == end_) return true;
    if (can_come(row_.lowest())) {
        faint_ = row_.reachable;
        return true;
    }
    faint_from_ = first_score(lowest, base_, can_come);
    faint_ = row_.count_from(faint_from_);
    return true;
}

// Leaves out what is too faint to come.
void Narrowing::clip() {
    if (faint_ >= end_) return;
    end_ = faint_;
    whole_ = false;
    cut_ = faint_from_;
}

// The weight of what is left, after its end has changed or the temperature has.
bool Narrowing::measure() {
    const std::int64_t end = std::min(end_, faint_);
    if (end <= sorted_) {
        held_ = {mass(end), mass(end) * rounding(end)};
        return true;
    }
    if (whole_) {
        const Sum rest = row_.outside(temperature_, exact_);
        held_.value = mass(sorted_) + rest.value;
        held_.error = rest.error + rounding(sorted_) * held_.value;
        row_weight_ = held_.value + ahead_[size(begin_)];
        return std::isfinite(held_.value);
    }
    if (faint_ < end_ && all_.error >= 0) return true;  // no weight went
    const double last = std::exp(tempered(cut_));
    if (scores_[size(sorted_ - 1)] == cut_) {  // all beyond are equal
        held_.value = mass(sorted_) + static_cast<double>(end - sorted_) * last;
        held_.error = rounding(end) * held_.value;
        return true;
    }
    if (!exact_) return false;
    const Reached reached = row_.reached(cut_, temperature_);
    held_.value = reached.weight - static_cast<double>(reached.count - end_) * last;
    held_.value -= ahead_[size(begin_)];
    held_.error = (1e-13 + rounding(end)) * reached.weight;
    return reached.count >= end_;
}

// Keeps, of ranks before `end`, the scores that reach `from`; all of them have to reach `surely`.
bool Narrowing::cut_at(double from, double surely, std::int64_t end) {
    const std::int64_t near = at_hand(end);
    const auto kept = [&](double bound) {
        const auto first = scores_.begin();
        return std::partition_point(first + begin_, first + near,
                                    [&](double score) { return score >= bound; }) -
               first;
    };
    const std::int64_t count = kept(from);
    if (kept(surely) != count || count == begin_) return false;
    if (count < near || near == end) {
        if (count < end_) whole_ = false;
        end_ = std::min(end_, count);
        return true;
    }
    const std::int64_t all = row_.count_from(from);
    if (row_.count_from(surely) != all) return false;
    if (all < end_) {
        end_ = all;
        whole_ = false;
        cut_ = from;
    }
    return true;
}

bool Narrowing::top_n_sigma(double n) {
    const double top = scores_[size(begin_)];
    const auto count = static_cast<double>(end_ - begin_);
    double mean = 0, square = 0;
    if (end_ <= sorted_) {
        for (std::int64_t i = begin_; i < end_; ++i) mean += (scores_[size(i)] - top) / count;
        for (std::int64_t i = begin_; i < end_; ++i) {
            const double d = scores_[size(i)] - top - mean;
            square += d * d;
        }
    } else {
        if (begin_ > 0) return false;
        const double from = whole_ ? lowest : cut_;
        const auto extra = static_cast<double>(row_.count_from(from)) - count;
        const double last = whole_ ? 0 : cut_ - top;
        mean = (row_.moments(from, 0).sum - extra * last) / count;
        square = row_.moments(from, mean).square - extra * (last - mean) * (last - mean);
    }
    const double reach = n * std::sqrt(square / count), bound = reach * (1 + tolerance);
    if (!std::isfinite(reach)) return false;
    const auto from = [&](double gap) {
        return first_score(lowest, top, [&](double score) { return top - score <= gap; });
    };
    return cut_at(from(bound + 2e-13 * reach), from(bound - 2e-13 * reach), end_);
}

bool Narrowing::top_k(std::int64_t k) {
    if (k >= end_ - begin_) return true;
    std::int64_t end = begin_ + k;
    if (end > sorted_) return false;
    if (rules_.exact_k) {
        end_ = end;
        whole_ = false;
        return true;
    }
    return cut_at(scores_[size(end - 1)], scores_[size(end - 1)], end_);
}

bool Narrowing::top_p(double p) {
    const Sum &of = rules_.of_what_is_left ? held_ : all_;
    const double target = (p - tolerance) * of.value;
    const double error = std::max(p, tolerance) * of.error;
    const std::int64_t near = at_hand(end_);
    const auto first = ahead_.begin();
    const double goal = target + ahead_[size(begin_)];
    const std::int64_t i =  // the token whose mass passes the goal
        std::partition_point(first + begin_ + 1, first + near + 1,
                             [&](double ahead) { return ahead < goal; }) -
        first - 1;
    const double doubt = error + rounding(i) * of.value;
    if (i < near) {
        const bool after = i == begin_ || mass(i) < target - doubt;
        const bool before = i + 1 == end_ || mass(i + 1) > target + doubt;
        if (!after || !before) return false;
        if (i + 1 < end_) whole_ = false;
        end_ = i + 1;
        return true;
    }
    if (near == end_) return mass(near - 1) < target - doubt || near == begin_ + 1;
    if (target > held_.value + held_.error + error + rounding(end_) * of.value) return true;
    if (!exact_) return false;
    const Place place = row_.find(goal, temperature_, row_weight(), ahead_);
    const double wide = error + 2e-13 * goal + rounding(place.rank) * of.value;
    if (!(place.before < goal - wide && place.before + place.weight > goal + wide)) return false;
    if (place.rank + 1 < end_) {
        end_ = place.rank + 1;
        whole_ = false;
        cut_ = place.token.score;
    }
    return true;
}

bool Narrowing::min_p(double m) {
    if (!(m > 1e-250)) return false;
    const double bound = exponents_[size(begin_)] + std::log(m) + std::log1p(-tolerance);
    const double doubt = 1e-13 + 4e-16 * std::abs(bound);
    const auto from = [&](double exponent) {
        return first_score(lowest, base_, [&](double x) { return tempered(x) >= exponent; });
    };
    return cut_at(from(bound - doubt), from(std::min(bound + doubt, 0.0)), end_);
}

bool Narrowing::xtc(double threshold) {
    const double target = (threshold - tolerance) * held_.value;
    const double doubt = threshold * held_.error + rounding(64) * held_.value;
    const std::int64_t near = at_hand(end_);
    std::int64_t able = 0;
    for (std::int64_t i = begin_; i < near && weights_[size(i)] > target - doubt; ++i, ++able)
        if (weights_[size(i)] < target + doubt) return false;
    if (able == near - begin_ && near < end_) return false;
    const std::int64_t gone = std::max<std::int64_t>(able - 1, 0);
    begin_ += gone;
    return true;
}

// Of all of the row at this temperature; near enough to judge a sample by.
double Narrowing::row_weight() {
    if (row_weight_ == 0)
        row_weight_ = ahead_[size(sorted_)] + row_.outside(temperature_, false).value;
    return row_weight_;
}

bool Narrowing::draw(double random) {
    clip();
    const double target = random * held_.value;
    const double error = random * held_.error;
    const double goal = target + ahead_[size(begin_)];
    const std::int64_t near = at_hand(end_);
    const auto first = ahead_.begin();
    std::int64_t i = std::partition_point(first + begin_ + 1, first + near + 1,
                                          [&](double ahead) { return ahead <= goal; }) -
                     first - 1;
    double before, weight;
    if (i < near || near == end_) {
        i = std::min(i, near - 1);
        token = row_.best[size(i)];
        before = mass(i);
        weight = weights_[size(i)];
        rank = i - begin_ + 1;
    } else {
        if (!exact_) return false;
        const Place place = row_.find(goal, temperature_, row_weight(), ahead_);
        token = place.token;
        before = place.before - ahead_[size(begin_)];
        weight = place.weight;
        rank = place.rank - begin_ + 1;
    }
    const double doubt = error + (exact_ ? 2e-13 * goal : 0) + rounding(rank) * held_.value;
    const bool after = rank == 1 || before < target - doubt;
    const bool until = rank == end_ - begin_ || before + weight > target + doubt;
    begin = before / held_.value;
    end = (before + weight) / held_.value;
    sampled_logprob = tempered(token.score) - std::log(held_.value);
    return after && until;
}

bool Narrowing::logprob(Candidate one, double &out) const {
    out = -std::numeric_limits<double>::infinity();
    if (!(one.score > out)) return true;
    if (ahead(one, row_.best[size(begin_)])) return true;
    if (end_ <= sorted_) {
        if (ahead(row_.best[size(end_ - 1)], one)) return true;
    } else if (!whole_ && one.score <= cut_) {
        if (one.score == cut_ && row_.count_from(cut_) != end_) return false;
        if (one.score < cut_) return true;
    }
    out = tempered(one.score) - std::log(held_.value);
    return true;
}

bool Narrowing::first(std::int64_t count,
                      std::vector<std::pair<std::int64_t, double>> &out) const {
    count = std::min(count, end_ - begin_);
    if (begin_ + count > sorted_) return false;
    const double log_sum = std::log(held_.value);
    out.clear();
    for (std::int64_t i = begin_; i < begin_ + count; ++i)
        out.emplace_back(row_.best[size(i)].id, exponents_[size(i)] - log_sum);
    return true;
}

}  // namespace forwardpass
