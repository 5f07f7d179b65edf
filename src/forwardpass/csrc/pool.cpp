#include "pool.h"

#include <chrono>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace forwardpass {
namespace {

constexpr auto idle_spin = std::chrono::microseconds(50);
constexpr int barrier_turns = 400;  // 10 us here; a barrier on an idle machine takes 0.2 to 0.6

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#endif
}

// How many forks lie between the process that the program began in and this one.
std::atomic<std::uint64_t> forks{0};

void watch_forks() {
#if defined(__unix__) || defined(__APPLE__)
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); }); });
#endif
}

}  // namespace

std::uint64_t forks_so_far() { return forks.load(); }

// Everything that belongs to the threads of one process.
struct Pool::Crew {
    // Written by its own thread; others only read `taken`, or add to it when they help.
    struct alignas(64) Seat {
        std::int64_t phase = 0;  // barriers met
        alignas(64) std::atomic<std::int64_t> taken[2] = {};  // of the even and the odd phases
    };

    explicit Crew(int threads) : born(forks.load()), seats(static_cast<std::size_t>(threads)) {}

    const std::uint64_t born;
    std::mutex turn;
    std::vector<Seat> seats;
    std::vector<std::thread> workers;
    Job job = nullptr;
    void *context = nullptr;
    std::atomic<bool> stopping{false};
    alignas(64) std::atomic<std::int64_t> arrived{0};
    alignas(64) std::atomic<std::uint32_t> started{0};  // jobs
};

Pool::Pool(int threads) : threads_(threads) {
    watch_forks();
    crew_ = new Crew(threads);
}

Pool::~Pool() {
    Crew *crew = crew_;
    if (crew->born != forks.load()) return;  // the threads are another process's
    crew->stopping = true;
    crew->started.fetch_add(1);
    crew->started.notify_all();
    for (std::thread &worker : crew->workers) worker.join();
    delete crew;
}

std::unique_lock<std::mutex> Pool::enter() {
    Crew *crew = crew_;
    if (crew->born != forks.load()) {
        // The old crew stays as it is: its lock may be held and its threads do not exist.
        auto fresh = std::make_unique<Crew>(threads_);
        if (crew_.compare_exchange_strong(crew, fresh.get())) crew = fresh.release();
    }
    std::unique_lock<std::mutex> lock(crew->turn);
    for (int t = 1 + static_cast<int>(crew->workers.size()); t < threads_; ++t)
        crew->workers.emplace_back([this, crew, t] { work(crew, t); });
    return lock;
}

void Pool::work(Crew *crew, int thread) {
    for (std::uint32_t seen = 0;;) {
        auto until = std::chrono::steady_clock::now() + idle_spin;
        while (crew->started.load(std::memory_order_acquire) == seen) {
            for (int i = 0; i < 16; ++i) pause();
            if (std::chrono::steady_clock::now() >= until) crew->started.wait(seen);
        }
        ++seen;
        if (crew->stopping) return;
        crew->job(crew->context, thread);
        meet(crew, thread);
    }
}

void Pool::run(Job job, void *context) {
    Crew *crew = crew_;
    crew->job = job;
    crew->context = context;
    crew->started.fetch_add(1);
    if (threads_ > 1) crew->started.notify_all();
    job(context, 0);
    meet(crew, 0);
}

void Pool::barrier(int thread) { meet(crew_.load(std::memory_order_relaxed), thread); }

void Pool::meet(Crew *crew, int thread) {
    Crew::Seat &seat = crew->seats[static_cast<std::size_t>(thread)];
    const std::int64_t phase = seat.phase++, all = (phase + 1) * threads_;
    if (threads_ > 1 && crew->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < all) {
        for (int turn = 0; crew->arrived.load(std::memory_order_acquire) < all; ++turn) {
            if (turn < barrier_turns) pause();
            else std::this_thread::yield();
        }
    }
    // Nobody looks at it again before the barrier after the next one.
    seat.taken[phase & 1].store(0, std::memory_order_relaxed);
}

bool Pool::take(int thread, std::int64_t total, std::int64_t most, std::int64_t &begin,
                std::int64_t &end) {
    Crew *crew = crew_.load(std::memory_order_relaxed);
    const std::int64_t parity = crew->seats[static_cast<std::size_t>(thread)].phase & 1;
    for (int i = 0; i < threads_; ++i) {
        const int owner = (thread + i) % threads_;
        const std::int64_t first = share(total, threads_, owner);
        const std::int64_t last = share(total, threads_, owner + 1);
        auto &taken = crew->seats[static_cast<std::size_t>(owner)].taken[parity];
        if (taken.load(std::memory_order_relaxed) >= last - first) continue;
        begin = first + taken.fetch_add(most, std::memory_order_relaxed);
        end = begin + most < last ? begin + most : last;
        if (begin < last) return true;
    }
    return false;
}

}  // namespace forwardpass
