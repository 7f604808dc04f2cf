// The largest of each row of a product with a tall matrix, without computing most of it.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/memory.h"
#include "program/machine.h"
#include "program/rough_activations.h"
#include "weights/packed.h"

namespace cabochon {

class BestRunner {
 public:
  // Fewer rows wait for memory anyway.
  static constexpr int64_t kLeastRows = 4;

  // For one matrix of integer weights. `two_terms` as in kernels/linear.h.
  BestRunner(Machine& machine, const PackedWeight& matrix, bool two_terms);

  // ids[r]: which output of row r of x [rows, cols] is the largest, the first of equal ones; -1 if one is not finite.
  // The outputs are what LinearRunner gives.
  void run(const float* x, int64_t rows, int32_t* ids);

  size_t bytes() const;

 private:
  // The best that one thread has seen of a row.
  struct Best {
    float value;
    int32_t id;
    bool finite;
  };

  void find_norms();
  void quantize(const float* x, int64_t rows);
  void look(int64_t group, int64_t rows, Best* best, uint8_t* scratch) const;
  void look_closely(int64_t group, int64_t row, Best& best, uint8_t* scratch) const;

  Machine& machine_;
  PackedWeight matrix_;
  bool two_terms_;
  bool norms_known_ = false;  // not before they are needed: finding them reads the whole matrix
  Memory norms_;              // [groups, cols / 32]
  RoughActivations rough_;
  Memory q_, scales_, sums_;  // of the activations as LinearRunner has them
  Memory scratch_;
  size_t scratch_stride_;
  std::vector<Best> best_;  // [threads, kRoughRows]
};

}  // namespace cabochon
