// One token from a row of scores: the native way to what sampling/chain.py says. Knows nothing of
// Python.
//
// Nothing is decided on less than is known. How many tokens a stage leaves and where the draw falls
// follow from sums that are off by a known amount; where they would come out otherwise within it
// (the plain way's own rounding counted in), float32 sums are taken again in float64, and where
// those leave it open, or a case is not provided for, there is no answer: the plain way decides.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sampler_row.h"

namespace forwardpass {

// Typical sampling is provided for only where it is off.
enum class StageKind : std::uint8_t {
    temperature, top_n_sigma, top_k, typical_p, top_p, min_p, xtc
};

struct StageRule {
    StageKind kind;
    double value;
    bool acts;
};

struct SamplingRules {
    std::vector<StageRule> stages;  // the temperature and the truncations, in order
    double temperature = 0;         // 0: the best score wins
    bool exact_k = true, of_what_is_left = false;
    double xtc_threshold = 0;
    std::int64_t seed = 0;
    std::uint64_t choice = 0;
    std::int64_t kept = 0;  // best scores that are kept of a row
};

struct SamplingInput {
    const float *scores = nullptr;
    std::int64_t size = 0;
    const std::int64_t *ids = nullptr;  // whose scores are others: rising, with their float64 scores
    const double *values = nullptr;
    std::int64_t changed = 0;
    const std::uint8_t *allowed = nullptr;  // a byte a score; or 32 scores a word; or both null
    const std::uint32_t *words = nullptr;
    std::uint64_t position = 0;
    const std::int64_t *wanted = nullptr;
    std::int64_t wanted_count = 0;
    bool masked() const { return allowed != nullptr || words != nullptr; }
};

struct StageLeft {
    std::int64_t survivors;
    double mass;
    std::int64_t best;
    double best_probability;
};

// What sampling/outcome.py keeps of a token.
struct Picked {
    std::int64_t token = 0, rank = 1;
    bool drawn = false;
    double random = 0, begin = 0, end = 0;  // where it was
    double logprob = 0, sampled_logprob = 0;
    std::int64_t rest = 0;
    double log_sum = 0, rest_mass = 0;
    std::vector<std::int64_t> best;  // ids
    std::vector<float> best_scores;
    std::vector<StageLeft> left;
    std::vector<std::pair<std::int64_t, double>> after;
    std::vector<std::pair<double, double>> wanted;
};

// Takes tokens under one request's rules. Not for two threads at once.
class Sampler {
  public:
    Sampler(const Kernels &kernels, SamplingRules rules);

    // The token, or null where the plain way has to decide. Valid until the next call. Throws
    // std::invalid_argument for ids that are not rising ids of the row.
    const Picked *pick(const SamplingInput &input);

    // How many were decided by float32 sums, by float64 sums, and left to the plain way.
    std::int64_t decided[3] = {};

  private:
    bool answer(const SamplingInput &input);
    void keep_best();
    bool adjust(const SamplingInput &input, Row &row);
    Candidate best_unchanged(const SamplingInput &input) const;
    double log_sum_before(const SamplingInput &input, const Row &row, double top);
    bool narrow(const SamplingInput &input, Row &row, bool exact);
    void take_best(const SamplingInput &input, const Row &row);
    double model_logprob(float score) const;
    double final_score(const SamplingInput &input, const Row &row, std::int64_t id) const;

    const Kernels &k_;
    SamplingRules rules_;
    std::int64_t need_;
    RowScratch scratch_;
    Row raw_{scratch_}, final_{scratch_};
    double total_ = 0;  // Σ exp(score − best) of the scores as they came
    bool on_its_own_ = false;  // whether `final_` is another row than `raw_`
    Picked picked_;
};

}  // namespace forwardpass
