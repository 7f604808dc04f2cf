#include "program/linear_runner.h"

#include <algorithm>

namespace cabochon {
namespace {

// Rows that meet a group of weights in one go: as many as keep their quantised activations in a core's own cache.
int64_t rows_at_once(int64_t rows, int64_t cols) {
  constexpr int64_t kCacheBytes = 192 * 1024;
  const int64_t fitting = std::clamp<int64_t>(kCacheBytes / (2 * cols), 16, 256);
  const int64_t blocks = (rows + fitting - 1) / fitting;
  return (rows + blocks - 1) / blocks;
}

}  // namespace

LinearRunner::LinearRunner(Machine& machine, bool two_terms, int64_t max_rows, int64_t max_cols)
    : machine_(machine), two_terms_(two_terms) {
  const auto values = static_cast<size_t>(max_rows * max_cols);
  q_ = Memory(values / kSliceInputs * 8);
  scales_ = Memory(values / kBlock * sizeof(ActivationScale));
  sums_ = Memory(values / (kBlock / 2) * sizeof(int32_t));
  scratch_stride_ = whole_lines(static_cast<size_t>(machine.kernels.linear.linear_scratch_bytes(max_cols)));
  scratch_ = Memory(scratch_stride_ * static_cast<size_t>(machine.pool.threads()));
}

void LinearRunner::quantize(const float* x, int64_t rows, int64_t cols) {
  const LinearKernels& kernels = machine_.kernels.linear;
  machine_.pool.parallel(rows, std::max<int64_t>(1, 4096 / cols), [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t) {
      kernels.quantize_row(x + t * cols, cols, two_terms_, q_.data() + t * cols / kSliceInputs * 8,
                           scales_.as<ActivationScale>() + t * (cols / kBlock),
                           sums_.as<int32_t>() + t * (cols / (kBlock / 2)));
    }
  });
}

void LinearRunner::run(const float* x, int64_t rows, int64_t cols, const std::vector<PackedWeight>& weights,
                       const std::vector<int32_t>& which, float* y, float* peaks) {
  const LinearKernels& kernels = machine_.kernels.linear;
  int64_t outputs = 0, groups = 0;
  bool quantized = false;
  for (const int32_t index : which) {
    const PackedWeight& w = weights[static_cast<size_t>(index)];
    outputs += w.rows;
    groups += w.groups();
    quantized |= is_quantized(w.format);
  }
  if (quantized) {
    quantize(x, rows, cols);
  }
  const int64_t block = rows_at_once(rows, cols), blocks = (rows + block - 1) / block;
  // One claim is some tens of microseconds of work where there is that much, and there are several for each thread. Few
  // rows take that long over a stretch of weights, and reading a new stretch starts slowly.
  const int64_t most = std::clamp<int64_t>(256 / block, 4, 32);
  const int64_t chunk = std::clamp<int64_t>(groups / (8 * machine_.pool.threads()), 1, most);
  machine_.pool.parallel(blocks * groups, chunk, [&](int64_t first, int64_t last, int thread) {
    uint8_t* scratch = scratch_.data() + static_cast<size_t>(thread) * scratch_stride_;
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t row = unit / groups * block;
      const int64_t count = std::min(block, rows - row);
      int64_t group = unit % groups, column = 0;
      auto index = which.begin();
      const PackedWeight* w = &weights[static_cast<size_t>(*index)];
      while (group >= w->groups()) {
        group -= w->groups();
        column += w->rows;
        w = &weights[static_cast<size_t>(*++index)];
      }
      float* out = y + row * outputs + column + group * kLanes;
      if (is_quantized(w->format)) {
        const QuantizedRows in{q_.data() + row * cols / kSliceInputs * 8,
                               scales_.as<ActivationScale>() + row * (cols / kBlock),
                               sums_.as<int32_t>() + row * (cols / (kBlock / 2))};
        kernels.linear_group(*w, group, in, count, two_terms_, out, outputs, scratch);
      } else {
        kernels.linear_group_float(*w, group, x + row * cols, cols, count, out, outputs);
      }
      if (peaks != nullptr) {  // while they are in the first cache
        machine_.kernels.rows.peaks(out, outputs, count, std::min<int64_t>(w->rows - kLanes * group, kLanes),
                                    peaks + row * groups + unit % groups, groups);
      }
    }
  });
}

}  // namespace cabochon
