// What programs run on: one instruction set's kernels and a pool of threads.
#pragma once

#include <atomic>
#include <stdexcept>

#include "kernels/kernels.h"
#include "threads/pool.h"

namespace cabochon {

class Machine {
 public:
  Machine(const Kernels& kernels, int threads) : kernels(kernels), pool(threads) {}

  const Kernels& kernels;
  Pool pool;

  // Held by whoever runs phases on the pool. Throws std::runtime_error if another thread is at it.
  class Turn {
   public:
    explicit Turn(Machine& machine) : busy_(machine.busy_) {
      if (busy_.exchange(true)) {
        throw std::runtime_error("the model is in use by another thread");
      }
    }
    ~Turn() { busy_.store(false); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::atomic<bool>& busy_;
  };

 private:
  std::atomic<bool> busy_{false};
};

}  // namespace cabochon
