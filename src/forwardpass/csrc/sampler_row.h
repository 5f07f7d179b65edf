// A row of scores in falling order, of which only the first part is ever sorted. Knows nothing of
// Python.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/kernels.h"

namespace forwardpass {

constexpr std::int64_t few_scores = 512;  // that are sorted rather than halved
constexpr float lowest_score = -std::numeric_limits<float>::max();
constexpr float highest_score = std::numeric_limits<float>::infinity();

struct Candidate {
    double score;
    std::int32_t id;
};

// Best score first, equals by id.
inline bool ahead(const Candidate &a, const Candidate &b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// A sum that is off by at most `error`.
struct Sum {
    double value = 0, error = 0;
};

// How many scores reach a bound, and their weight.
struct Reached {
    std::int64_t count = 0;
    double weight = 0;
};

// A token in the falling order: how many are ahead of it, and their weight.
struct Place {
    std::int64_t rank;
    Candidate token;
    double before, weight;
};

// Memory that calls share; nothing in it outlives a call.
struct RowScratch {
    std::vector<float> groups, values, working;
    std::vector<std::int32_t> ids;
    std::vector<std::uint64_t> keys, sorted;
    std::vector<Candidate> some, sample;
    std::vector<double> scores, exponents, weights;                // of the sample
    std::vector<double> best, best_exponents, best_weights, ahead_of;  // of the sorted part
};

// Scores in float32, but for a few ids whose scores, in float64, stand apart (and are -inf in the
// row). Weights are exp((score − top) / temperature), `top` the best score of all.
class Row {
  public:
    explicit Row(RowScratch &scratch) : scratch_(scratch) {}

    // Sorts the `need` best (or more, or all), and sums up the others at `temperature`. False where
    // nothing is above -inf, or something is NaN or +inf.
    bool open(const Kernels &kernels, const float *x, std::int64_t n, std::int64_t need,
              double temperature);

    std::vector<Candidate> others;  // to be filled before `open`, all above -inf
    std::vector<Candidate> best;    // the first ones, sorted
    std::int64_t reachable = 0;     // how many are above -inf
    double top() const { return best.front().score; }
    double lowest() const;  // of all; -inf where the row has that
    // Exponents and weights of `scores`, whose best is `top`.
    void weigh(const std::vector<double> &scores, std::int64_t count, double top,
               double temperature, std::vector<double> &exponents,
               std::vector<double> &weights) const;

    // The weight of all that is not in `best`: float32 sums, or (`exact`) float64 sums.
    Sum outside(double temperature, bool exact);
    // Where the first search will be, as a share of all weight: exact, `outside` reads ahead for it.
    void expect(double share) { expected_ = share; }

    std::int64_t count_from(double from) const;
    Reached reached(double from, double temperature) const;  // float64 sums
    // Σ (score − top − mean) and Σ of its squares over what reaches `from`.
    Moments moments(double from, double mean) const;
    // The first token whose weight and that of all ahead of it pass `target`, which is below
    // `total`. `ahead_of` has the weight ahead of each of `best`. float64 sums.
    Place find(double target, double temperature, double total,
               const std::vector<double> &ahead_of);

  private:
    struct Bracket;

    std::int64_t by_sample(std::int64_t need, double temperature);
    std::int64_t by_scan(std::int64_t need, double temperature);
    float floor_for(std::int64_t need) const;
    void gather(std::int64_t need, double temperature);
    void gather_ties(std::int64_t need, double temperature);
    void sort_found(std::int64_t count, std::vector<Candidate> &into);
    void merge(bool complete);
    static bool fits_float32(double temperature);
    Reached others_from(double from, double to, double temperature) const;
    void sample(double temperature);
    void guess(Bracket &bracket, double share) const;
    Sum exact_below(double temperature);
    void enclose(Bracket &bracket, double target, double temperature, double total);
    void collect(Bracket &bracket) const;
    void halve(Bracket &bracket, double target, double temperature) const;
    Place locate(const Bracket &bracket, double target, double temperature);

    RowScratch &scratch_;
    const Kernels *k_ = nullptr;
    const float *x_ = nullptr;
    std::int64_t n_ = 0;
    Extremes ends_{};
    double top_ = 0;
    float row_top_ = 0;              // to which float32 sums refer: about the best of the row
    float floor_ = 0;                // what is below is not in `best` …
    std::int64_t equals_left_ = 0;   // … nor are so many that equal it
    std::size_t others_in_ = 0;      // of `others`, the first ones are in `best`
    std::int64_t found_ = 0;
    double rest_ = 0, rest_temperature_ = 0;  // float32 sum of what is below the floor
    double sample_temperature_ = 0;           // of the sorted sample in the scratch; 0: none
    double expected_ = -1;
    double known_temperature_ = 0;            // of what is known to reach a score; 0: nothing
    float known_from_ = 0;
    Reached known_;
};

// The order of float32 as integers, and back; −0 and 0 are next to each other.
std::int32_t key_of(float x);
float float_of(std::int32_t key);
// The lowest float32 that is at least x.
float at_or_above(double x);

}  // namespace forwardpass
