// Matrix products of any number of rows, spread over the threads.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/memory.h"
#include "program/machine.h"
#include "weights/packed.h"

namespace cabochon {

class LinearRunner {
 public:
  // For products of up to `max_rows` rows of up to `max_cols` inputs. `two_terms` as in kernels/linear.h.
  LinearRunner(Machine& machine, bool two_terms, int64_t max_rows, int64_t max_cols);

  // y [rows, sum of outputs] of x [rows, cols] and some of `weights`, of `cols` inputs each, side by side; rows > 0.
  // `peaks` [rows, groups of 16 outputs], if it is not null: see kernels/rows.h.
  void run(const float* x, int64_t rows, int64_t cols, const std::vector<PackedWeight>& weights,
           const std::vector<int32_t>& which, float* y, float* peaks = nullptr);

 private:
  void quantize(const float* x, int64_t rows, int64_t cols);

  Machine& machine_;
  bool two_terms_;
  Memory q_, scales_, sums_, scratch_;
  size_t scratch_stride_;
};

}  // namespace cabochon
