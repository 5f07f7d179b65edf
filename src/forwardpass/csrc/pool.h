// Threads that run one job together, meet at barriers, and sleep while there is none.
//
// A worker that has finished spins for 50 us, then sleeps until the next job: an idle program uses
// no processor time. At a barrier threads spin for a bounded number of turns and then yield, so that
// a machine with more to run than cores goes on. After a fork the child has no workers; it makes
// its own, with locks of its own, when it first needs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace forwardpass {

// Forks between the process in which the first pool was made and this one.
std::uint64_t forks_so_far();

class Pool {
  public:
    using Job = void (*)(void *context, int thread);

    explicit Pool(int threads);  // of which the caller of `run` is one, number 0
    ~Pool();                     // joins the workers
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    int threads() const { return threads_; }

    // The pool for one caller at a time; held while `run` runs.
    std::unique_lock<std::mutex> enter();

    // job(context, t) on every thread t; returns when all have returned. They must have met at the
    // same number of barriers.
    void run(Job job, void *context);

    // Returns when every thread has called it.
    void barrier(int thread);

    // The first of `total` items that are a thread's own.
    static std::int64_t share(std::int64_t total, int threads, int thread) {
        return total * thread / threads;
    }

    // Hands out the items 0 … total − 1 of what lies between two barriers, at most `most` at a time:
    // each thread goes through its own even share, then helps the others with theirs. False when
    // none is left. All threads must name the same total.
    bool take(int thread, std::int64_t total, std::int64_t most, std::int64_t &begin,
              std::int64_t &end);

  private:
    struct Crew;
    void work(Crew *crew, int thread);
    void meet(Crew *crew, int thread);

    const int threads_;
    std::atomic<Crew *> crew_;
};

}  // namespace forwardpass
