// Running a program.
#include "program/program.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "numerics/float_mode.h"

namespace cabochon {
namespace {

constexpr int64_t kWorthAThread = 8192;  // floats of elementwise work in the time a thread takes to answer

// Which is the largest, the first of equal ones; -1 if one is not finite.
int64_t largest(const float* x, int64_t count) {
  float not_finite = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    not_finite += x[i] * 0.0f;
  }
  return not_finite == 0.0f ? std::max_element(x, x + count) - x : -1;
}

// The same, of logits. With `peaks`, if there are any (kernels/rows.h), few of them are looked at.
int32_t best_of(const float* logits, int64_t count, const float* peaks) {
  if (peaks == nullptr) {
    return static_cast<int32_t>(largest(logits, count));
  }
  const int64_t group = largest(peaks, (count + kLanes - 1) / kLanes);
  if (group < 0) {
    return -1;
  }
  const int64_t first = group * kLanes;
  return static_cast<int32_t>(first + largest(logits + first, std::min<int64_t>(kLanes, count - first)));
}

}  // namespace

// Calls fn(row) for each row, on the calling thread alone where there is little to do.
template <typename Fn>
void Program::each_row(int64_t rows, int64_t floats, Fn&& fn) {
  machine_->pool.parallel(rows, 1 + kWorthAThread / (1 + floats), [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      fn(row);
    }
  });
}

int32_t Program::run(const Step& step, bool with_head) {
  require_finished();
  const std::string fault = find_fault(step, limits_);
  if (!fault.empty()) {
    throw std::invalid_argument(fault);
  }
  if (with_head && step.logits > sizes_.max_head_rows) {
    throw std::invalid_argument("the head is asked for more rows than it has room for");
  }
  const Machine::Turn turn(*machine_);
  const FloatMode mode;
  rows_[static_cast<size_t>(Rows::Step)] = step.rows;
  rows_[static_cast<size_t>(Rows::Kept)] = step.kept();
  failed_layer_.store(-1, std::memory_order_relaxed);
  counters_.runs += 1;
  counters_.rows += step.rows;
  gather_kept(step);
  prepare_angles(step);
  for (const Instruction& instruction : body_code_) {
    std::visit([&](const auto& i) { execute(i, &step); }, instruction);
    if (const int32_t layer = failed_layer_.load(std::memory_order_relaxed); layer >= 0) {
      return layer;
    }
  }
  find_bests(at(hidden_) + step.logits * hidden_width(), step.bests);
  if (with_head) {
    head(at(hidden_), step.logits);
  }
  return -1;
}

void Program::run_head(const float* hidden, int64_t rows) {
  require_finished();
  if (rows < 0 || rows > sizes_.max_head_rows) {
    throw std::invalid_argument("the head is asked for more rows than it has room for");
  }
  const Machine::Turn turn(*machine_);
  const FloatMode mode;
  head(hidden, rows);
}

void Program::head(const float* hidden, int64_t rows) {
  rows_[static_cast<size_t>(Rows::Head)] = rows;
  std::memcpy(at(head_in_), hidden, static_cast<size_t>(rows * hidden_width()) * sizeof(float));
  for (const Instruction& instruction : head_code_) {
    std::visit([&](const auto& i) { execute(i, nullptr); }, instruction);
  }
}

void Program::find_bests(const float* hidden, int64_t rows) {
  bests_.resize(static_cast<size_t>(rows));
  if (best_ && rows >= BestRunner::kLeastRows) {
    best_->run(hidden, rows, bests_.data());
    return;
  }
  for (int64_t first = 0; first < rows; first += sizes_.max_head_rows) {
    const int64_t count = std::min(sizes_.max_head_rows, rows - first);
    head(hidden + first * hidden_width(), count);
    machine_->pool.parallel(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const float* peaks = this->peaks() == nullptr ? nullptr : this->peaks() + row * peaks_width();
        bests_[static_cast<size_t>(first + row)] = best_of(at(logits_) + row * vocab(), vocab(), peaks);
      }
    });
  }
}

// ---- The step's integers ----------------------------------------------------------------------------------------

void Program::gather_kept(const Step& step) {
  const int64_t groups = static_cast<int64_t>(limits_.pages.size());
  for (int64_t i = 0; i < step.kept(); ++i) {
    const int64_t row = step.kept_row(i);
    kept_sequence_[static_cast<size_t>(i)] = step.sequence_of[row];
    for (int64_t g = 0; g < groups; ++g) {
      kept_first_[static_cast<size_t>(g * step.kept() + i)] = step.first_key[g * step.rows + row];
      kept_last_[static_cast<size_t>(g * step.kept() + i)] = step.last_key[g * step.rows + row];
    }
  }
}

AttendingRows Program::attending(const Step& step, int64_t group, Rows rows) {
  if (rows == Rows::Step) {
    return {step.rows, step.sequence_of, step.first_key + group * step.rows, step.last_key + group * step.rows};
  }
  return {step.kept(), kept_sequence_.data(), kept_first_.data() + group * step.kept(),
          kept_last_.data() + group * step.kept()};
}

// Cosines and sines of every row's position, for every rope: [rows, angle_columns].
void Program::prepare_angles(const Step& step) {
  each_row(step.rows, 32 * angle_columns_, [&](int64_t row) {
    float* angles = angles_.as<float>() + row * angle_columns_;
    for (size_t r = 0; r < ropes_.size(); ++r) {
      const auto n = static_cast<int64_t>(ropes_[r].size());
      float* cosine = angles + angle_place_[r];
      machine_->kernels.rows.angles(step.positions[row], ropes_[r].data(), n, cosine, cosine + n);
    }
  });
}

void Program::count_attention(const Layer& layer, int64_t heads, const AttendingRows& rows) {
  int64_t keys = 0;
  for (int64_t i = 0; i < rows.count; ++i) {
    keys += rows.last_key[i] - rows.first_key[i] + 1;
  }
  counters_.pairs += keys * heads;
  counters_.kv_bytes_read += keys * layer.kv.position_bytes();
}

// ---- Instructions -----------------------------------------------------------------------------------------------

void Program::execute(const Embed& i, const Step* step) {
  const PackedWeight& table = weights_[static_cast<size_t>(i.table)];
  float* out = at(i.out);
  each_row(rows_of(i.out), 4 * table.cols, [&](int64_t row) {
    machine_->kernels.linear.dequantize_row(table, step->ids[row], i.scale, out + row * table.cols);
  });
}

void Program::execute(const RmsNorm& i, const Step*) {
  const int64_t n = value(i.out).width;
  const float *x = at(i.x), *g = gain(i.gain).data();
  float* out = at(i.out);
  each_row(rows_of(i.out), n,
           [&](int64_t row) { machine_->kernels.rows.rms_norm(x + row * n, g, n, i.eps, out + row * n); });
}

void Program::execute(const AddNorm& i, const Step*) {
  const int64_t n = value(i.out).width;
  const float *h = at(i.h), *x = at(i.x), *g = gain(i.gain).data();
  float* out = at(i.out);
  each_row(rows_of(i.out), n,
           [&](int64_t row) { machine_->kernels.rows.add_norm(h + row * n, x + row * n, g, n, i.eps, out + row * n); });
}

void Program::execute(const Add& i, const Step*) {
  const int64_t n = value(i.out).width;
  const float *a = at(i.a), *b = at(i.b);
  float* out = at(i.out);
  each_row(rows_of(i.out), n,
           [&](int64_t row) { machine_->kernels.rows.add(a + row * n, b + row * n, n, out + row * n); });
}

void Program::execute(const GatedGelu& i, const Step*) {
  const int64_t n = value(i.out).width;
  const float* x = at(i.x);
  float* out = at(i.out);
  each_row(rows_of(i.out), 4 * n, [&](int64_t row) {
    const float* gate = x + 2 * n * row;
    machine_->kernels.rows.gated_gelu(gate, gate + n, n, out + row * n);
  });
}

void Program::execute(const Softcap& i, const Step*) {
  const int64_t n = value(i.out).width;
  const float* x = at(i.x);
  float* out = at(i.out);
  // A row may be as long as the vocabulary: parts of it are as good as whole rows.
  constexpr int64_t kPart = 4096;
  const int64_t floats = rows_of(i.out) * n;
  each_row((floats + kPart - 1) / kPart, 4 * kPart, [&](int64_t part) {
    const int64_t first = part * kPart;
    machine_->kernels.rows.softcap(x + first, i.cap, std::min(kPart, floats - first), out + first);
  });
}

void Program::execute(const KeepRows& i, const Step* step) {
  const auto n = static_cast<size_t>(value(i.out).width);
  for (int64_t row = 0; row < step->kept(); ++row) {
    std::memcpy(at(i.out) + static_cast<size_t>(row) * n, at(i.x) + static_cast<size_t>(step->kept_row(row)) * n,
                n * sizeof(float));
  }
}

void Program::execute(const Linear& i, const Step*) {
  if (const int64_t rows = rows_of(i.out); rows > 0) {
    float* peaks = i.out == logits_ ? this->peaks() : nullptr;
    linear_->run(at(i.x), rows, value(i.x).width, weights_, i.weights, at(i.out), peaks);
  }
}

void Program::execute(const NormRopeStore& i, const Step* step) {
  const Layer& layer = layers_[static_cast<size_t>(i.layer)];
  const auto rope = static_cast<size_t>(i.rope);
  const HeadShape shape{i.heads,
                        layer.kv.kv_heads,
                        layer.kv.head_dim,
                        i.query_gain < 0 ? nullptr : gain(i.query_gain).data(),
                        i.key_gain < 0 ? nullptr : gain(i.key_gain).data(),
                        i.eps,
                        i.query_scale};
  const int32_t* slots = step->slots + layer.group * step->rows;
  const int64_t in = value(i.qkv).width, n = value(i.out).width;
  each_row(step->rows, 4 * in, [&](int64_t row) {
    const float* cosine = angles_.as<float>() + row * angle_columns_ + angle_place_[rope];
    const float* sine = cosine + ropes_[rope].size();
    if (!machine_->kernels.rows.norm_rope_store(shape, at(i.qkv) + row * in, cosine, sine, at(i.out) + row * n,
                                                layer.kv, slots[row])) {
      failed_layer_.store(i.layer, std::memory_order_relaxed);
    }
  });
  counters_.kv_bytes_written += step->rows * layer.kv.position_bytes();
}

void Program::execute(const Attend& i, const Step* step) {
  const Layer& layer = layers_[static_cast<size_t>(i.layer)];
  const AttendingRows rows = attending(*step, layer.group, value(i.out).rows);
  attention_->run(layer.kv, i.heads, i.softcap, rows, step->tables[static_cast<size_t>(layer.group)], at(i.q),
                  at(i.out));
  count_attention(layer, i.heads, rows);
}

}  // namespace cabochon
