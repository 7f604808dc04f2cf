// Activations quantised once more for rough products: kernels/best.h.
#pragma once

#include <cstdint>

#include "kernels/best.h"
#include "memory/memory.h"

namespace cabochon {

class RoughActivations {
 public:
  // For up to kRoughRows rows of up to `max_cols` inputs. `two_terms` as in kernels/linear.h.
  RoughActivations(int64_t max_cols, bool two_terms);

  // Fills in row `row` from its floats, `cols` of them (a multiple of 32).
  void quantize(int64_t row, const float* x, int64_t cols);

  RoughRows rows() const {
    return {q_.as<int8_t>(), scales_.as<ActivationScale>(), sums_.as<int32_t>(), errors_.as<float>(),
            sizes_.as<float>()};
  }
  size_t bytes() const { return q_.bytes() + scales_.bytes() + sums_.bytes() + errors_.bytes() + sizes_.bytes(); }

 private:
  bool two_terms_;
  Memory q_, scales_, sums_, errors_, sizes_;
};

}  // namespace cabochon
