#include "program/best_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cabochon {
namespace {

bool better(float value, int32_t id, float than_value, int32_t than_id) {
  return value > than_value || (value == than_value && id < than_id);
}

}  // namespace

BestRunner::BestRunner(Machine& machine, const PackedWeight& matrix, bool two_terms)
    : machine_(machine), matrix_(matrix), two_terms_(two_terms), rough_(matrix.cols, two_terms) {
  const auto values = static_cast<size_t>(kRoughRows * matrix.cols);
  norms_ = Memory(static_cast<size_t>(matrix.groups() * (matrix.cols / kBlock)) * sizeof(float));
  q_ = Memory(values / kSliceInputs * 8);
  scales_ = Memory(values / kBlock * sizeof(ActivationScale));
  sums_ = Memory(values / (kBlock / 2) * sizeof(int32_t));
  scratch_stride_ = whole_lines(static_cast<size_t>(machine.kernels.linear.linear_scratch_bytes(matrix.cols)));
  scratch_ = Memory(scratch_stride_ * static_cast<size_t>(machine.pool.threads()));
  best_.resize(static_cast<size_t>(machine.pool.threads() * kRoughRows));
}

size_t BestRunner::bytes() const {
  return norms_.bytes() + rough_.bytes() + q_.bytes() + scales_.bytes() + sums_.bytes() + scratch_.bytes();
}

void BestRunner::find_norms() {
  const int64_t blocks = matrix_.cols / kBlock;
  machine_.pool.parallel(matrix_.groups(), 16, [&](int64_t first, int64_t last, int) {
    for (int64_t group = first; group < last; ++group) {
      machine_.kernels.best.block_norms(matrix_, group, norms_.as<float>() + group * blocks);
    }
  });
  norms_known_ = true;
}

void BestRunner::quantize(const float* x, int64_t rows) {
  const int64_t cols = matrix_.cols;
  machine_.pool.parallel(rows, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      machine_.kernels.linear.quantize_row(x + row * cols, cols, two_terms_, q_.data() + row * cols / kSliceInputs * 8,
                                           scales_.as<ActivationScale>() + row * (cols / kBlock),
                                           sums_.as<int32_t>() + row * (cols / (kBlock / 2)));
      rough_.quantize(row, x + row * cols, cols);
    }
  });
}

void BestRunner::run(const float* x, int64_t rows, int32_t* ids) {
  if (!norms_known_) {
    find_norms();
  }
  const int64_t threads = machine_.pool.threads();
  for (int64_t first_row = 0; first_row < rows; first_row += kRoughRows) {
    const int64_t count = std::min<int64_t>(kRoughRows, rows - first_row);
    quantize(x + first_row * matrix_.cols, count);
    std::fill(best_.begin(), best_.end(), Best{-std::numeric_limits<float>::infinity(), -1, true});
    const int64_t chunk = std::clamp<int64_t>(matrix_.groups() / (8 * threads), 1, 32);
    machine_.pool.parallel(matrix_.groups(), chunk, [&](int64_t first, int64_t last, int thread) {
      Best* best = &best_[static_cast<size_t>(thread * kRoughRows)];
      uint8_t* scratch = scratch_.data() + static_cast<size_t>(thread) * scratch_stride_;
      for (int64_t group = first; group < last; ++group) {
        look(group, count, best, scratch);
      }
    });
    for (int64_t row = 0; row < count; ++row) {
      Best all = best_[static_cast<size_t>(row)];
      for (int64_t thread = 1; thread < threads; ++thread) {
        const Best& one = best_[static_cast<size_t>(thread * kRoughRows + row)];
        const bool finite = all.finite && one.finite;
        if (better(one.value, one.id, all.value, all.id)) {
          all = one;
        }
        all.finite = finite;
      }
      ids[first_row + row] = all.finite ? all.id : -1;
    }
  }
}

// Outputs that may be the largest of their row are computed, and all that may not be finite.
void BestRunner::look(int64_t group, int64_t rows, Best* best, uint8_t* scratch) const {
  float bounds[kRoughRows];
  const float* norms = norms_.as<float>() + group * (matrix_.cols / kBlock);
  machine_.kernels.best.rough_group(matrix_, group, norms, rough_.rows(), rows, bounds);
  for (int64_t row = 0; row < rows; ++row) {
    if (!(bounds[row] < best[row].value) && best[row].finite) {
      look_closely(group, row, best[row], scratch);
    }
  }
}

void BestRunner::look_closely(int64_t group, int64_t row, Best& best, uint8_t* scratch) const {
  const int64_t cols = matrix_.cols;
  const QuantizedRows in{q_.data() + row * cols / kSliceInputs * 8,
                         scales_.as<ActivationScale>() + row * (cols / kBlock),
                         sums_.as<int32_t>() + row * (cols / (kBlock / 2))};
  float y[kLanes];
  machine_.kernels.linear.linear_group(matrix_, group, in, 1, two_terms_, y, kLanes, scratch);
  const int64_t present = std::min<int64_t>(kLanes, matrix_.rows - group * kLanes);
  for (int64_t lane = 0; lane < present; ++lane) {
    const auto id = static_cast<int32_t>(group * kLanes + lane);
    best.finite = best.finite && std::isfinite(y[lane]);
    if (better(y[lane], id, best.value, best.id)) {
      best.value = y[lane];
      best.id = id;
    }
  }
}

}  // namespace cabochon
