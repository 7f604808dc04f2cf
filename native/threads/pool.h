// A fixed set of threads that works through many short phases, one after another.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace cabochon {

// The calling thread takes part: Pool(1) starts none. Between phases workers spin for some microseconds, then sleep; a
// phase never waits for a worker that has not begun on it, so that more threads than CPUs are slow but not stuck.
//
// One phase at a time: parallel() may not be called by two threads at once, nor from within a phase. In a child process
// made by fork() the workers do not exist; parallel() there does all the work on the calling thread.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(first, last, thread) for consecutive parts of [0, items), each of `chunk` items but for the last; `thread`
  // is in [0, threads()) and no two parts run under the same number at once. Returns when all are done. The parts are
  // claimed one by one, so their order and owners vary: results must not depend on them. fn must not throw. Every part
  // runs in the mode of numerics/float_mode.h if the caller is in it.
  template <typename Fn>
  void parallel(int64_t items, int64_t chunk, Fn&& fn) {
    using Plain = std::remove_reference_t<Fn>;
    run({items, chunk, const_cast<void*>(static_cast<const void*>(&fn)),
         [](void* f, int64_t first, int64_t last, int thread) noexcept {
           (*static_cast<Plain*>(f))(first, last, thread);
         }});
  }

 private:
  struct Job {
    int64_t items;
    int64_t chunk;
    void* context;
    void (*part)(void* context, int64_t first, int64_t last, int thread) noexcept;
  };

  void run(const Job& job);
  void claim_parts(int thread);
  void work(int thread);
  bool await_change(uint32_t seen);

  // One phase's word: its number in the high half, whether it takes no more workers in bit 31, and how many are at
  // work.
  static constexpr uint64_t kClosed = uint64_t{1} << 31;
  static constexpr uint64_t kActive = kClosed - 1;

  Job job_{};
  alignas(64) std::atomic<uint64_t> phase_{kClosed};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> number_{0};  // of the phase; what sleeping workers watch
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  pid_t owner_;
  std::vector<std::thread> workers_;
};

}  // namespace cabochon
