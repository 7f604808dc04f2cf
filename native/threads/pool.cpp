#include "threads/pool.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "numerics/float_mode.h"

namespace cabochon {
namespace {

void pause() {
#if defined(__SSE2__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Signals are for the threads of the program that uses us; only those a thread raises itself are answered here.
void block_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
    sigdelset(&set, own);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kPausesPerLook = 64;  // between two looks at the clock

}  // namespace

Pool::Pool(int threads) : owner_(getpid()) {
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
    }
  } catch (...) {  // the system gives no more threads: those that started must not outlive the pool
    stop_.store(true);
    number_.fetch_add(1);
    number_.notify_all();
    for (std::thread& worker : workers_) {
      worker.join();
    }
    throw;
  }
}

Pool::~Pool() {
  stop_.store(true);
  number_.fetch_add(1);
  number_.notify_all();
  for (std::thread& worker : workers_) {
    if (getpid() == owner_) {
      worker.join();
    } else {
      worker.detach();
    }
  }
}

void Pool::run(const Job& job) {
  if (job.items <= 0) {
    return;
  }
  const int64_t parts = (job.items + job.chunk - 1) / job.chunk;
  job_ = job;
  next_.store(0, std::memory_order_relaxed);
  if (workers_.empty() || parts == 1) {
    claim_parts(0);
    return;
  }
  const uint32_t number = number_.load(std::memory_order_relaxed) + 1;
  phase_.store(uint64_t{number} << 32, std::memory_order_release);
  // Ordered against await_change(): either this sees the sleeper, or the sleeper sees the new number.
  number_.store(number, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    number_.notify_all();
  }
  claim_parts(0);
  // Whoever has not joined by now finds nothing left to do.
  uint64_t now = phase_.fetch_or(kClosed, std::memory_order_acq_rel);
  for (int spins = 0; (now & kActive) != 0; ++spins) {
    if (spins < 4096) {
      pause();
    } else {
      std::this_thread::yield();
    }
    now = phase_.load(std::memory_order_acquire);
  }
}

void Pool::claim_parts(int thread) {
  const Job job = job_;
  for (;;) {
    const int64_t first = next_.fetch_add(job.chunk, std::memory_order_relaxed);
    if (first >= job.items) {
      return;
    }
    const int64_t last = first + job.chunk < job.items ? first + job.chunk : job.items;
    job.part(job.context, first, last, thread);
  }
}

void Pool::work(int thread) {
  block_signals();
  const FloatMode mode;
  uint32_t seen = 0;
  while (await_change(seen)) {
    seen = number_.load(std::memory_order_acquire);
    uint64_t phase = phase_.load(std::memory_order_acquire);
    while (!(phase & kClosed)) {
      if (phase_.compare_exchange_weak(phase, phase + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        claim_parts(thread);
        phase_.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }
}

// Waits until the number of the phase is not `seen`; false if the pool ends.
bool Pool::await_change(uint32_t seen) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (number_.load(std::memory_order_acquire) != seen) {
        return !stop_.load();
      }
      pause();
    }
  } while (std::chrono::steady_clock::now() - start < kSpin);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  number_.wait(seen, std::memory_order_seq_cst);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return !stop_.load();
}

}  // namespace cabochon
