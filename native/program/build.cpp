// Building a program: everything that an instruction names is checked here, so that running need not.
#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "program/program.h"

namespace cabochon {
namespace {

void require(bool holds, const char* what) {
  if (!holds) {
    throw std::invalid_argument(std::string("program: ") + what);
  }
}

constexpr int64_t kLargest = int64_t{1} << 40;  // floats of a buffer; no product of two sizes overflows

}  // namespace

Program::Program(std::shared_ptr<Machine> machine, const ProgramSizes& sizes)
    : machine_(std::move(machine)), sizes_(sizes) {
  require(sizes.max_rows >= 1 && sizes.max_head_rows >= 1 && sizes.max_rows <= INT32_MAX &&
              sizes.max_head_rows <= INT32_MAX,
          "the numbers of rows must be positive");
  require(sizes.columns >= 0 && sizes.head_columns >= 0 && sizes.columns <= kLargest / sizes.max_rows &&
              sizes.head_columns <= kLargest / sizes.max_head_rows,
          "the buffers are too large");
  body_ = Memory(static_cast<size_t>(sizes.max_rows * sizes.columns) * sizeof(float));
  head_ = Memory(static_cast<size_t>(sizes.max_head_rows * sizes.head_columns) * sizeof(float), true);
  limits_.max_rows = sizes.max_rows;
  limits_.vocab = 0;
}

void Program::require_building() const { require(!finished_, "the program is finished: nothing can be added"); }

void Program::require_finished() const { require(finished_, "the program is not finished"); }

Value Program::add_value(int64_t width, int64_t place, Rows rows) {
  require_building();
  const bool head = rows == Rows::Head;
  const int64_t columns = head ? sizes_.head_columns : sizes_.columns;
  require(width >= 1 && place >= 0 && width <= columns && place <= columns - width, "a value lies outside its buffer");
  float* memory = (head ? head_ : body_).as<float>();
  values_.push_back({width, rows, memory + place * (head ? sizes_.max_head_rows : sizes_.max_rows)});
  return static_cast<Value>(values_.size() - 1);
}

Weight Program::add_weight(const PackedWeight& weight) {
  require_building();
  weights_.push_back(weight);
  return static_cast<Weight>(weights_.size() - 1);
}

Gain Program::add_gain(std::vector<float> gain) {
  require_building();
  gains_.push_back(std::move(gain));
  return static_cast<Gain>(gains_.size() - 1);
}

int32_t Program::add_rope(std::vector<float> inv_freq) {
  require_building();
  require(!inv_freq.empty() && inv_freq.size() <= static_cast<size_t>(kMaxHeadDim), "a rope has no frequencies");
  angle_place_.push_back(angle_columns_);
  angle_columns_ += 2 * static_cast<int64_t>(inv_freq.size());
  ropes_.push_back(std::move(inv_freq));
  return static_cast<int32_t>(ropes_.size() - 1);
}

int32_t Program::add_layer(int64_t group, const KVLayer& kv) {
  require_building();
  require(group >= 0 && group < 1024, "no such page group");
  const auto g = static_cast<size_t>(group);
  if (g >= limits_.pages.size()) {
    limits_.pages.resize(g + 1, INT32_MAX / kPage);
  }
  limits_.pages[g] = std::min(limits_.pages[g], kv.pages);
  layers_.push_back({group, kv});
  return static_cast<int32_t>(layers_.size() - 1);
}

void Program::add(Instruction instruction) {
  require_building();
  auto known = [](auto index, const auto& list) {
    require(index >= 0 && static_cast<size_t>(index) < list.size(), "an instruction names what is not there");
  };
  auto same_rows = [&](Value a, Value b) { require(value(a).rows == value(b).rows, "the rows of two values differ"); };
  auto width = [&](Value v, int64_t n) { require(value(v).width == n, "a value has another width than its use"); };
  auto gain_of = [&](Gain g, int64_t n) {
    known(g, gains_);
    require(static_cast<int64_t>(gain(g).size()) == n, "a gain has another length than what it multiplies");
  };
  bool head = false;
  std::visit(
      [&](const auto& i) {
        using T = std::decay_t<decltype(i)>;
        known(i.out, values_);
        head = value(i.out).rows == Rows::Head;
        const int64_t n = value(i.out).width;
        if constexpr (std::is_same_v<T, Embed>) {
          known(i.table, weights_);
          width(i.out, weights_[static_cast<size_t>(i.table)].cols);
          require(value(i.out).rows == Rows::Step, "embed gives the rows of the step");
          const int64_t vocab = weights_[static_cast<size_t>(i.table)].rows;
          limits_.vocab = limits_.vocab == 0 ? vocab : std::min(limits_.vocab, vocab);
        } else if constexpr (std::is_same_v<T, Linear>) {
          known(i.x, values_);
          same_rows(i.out, i.x);
          int64_t outputs = 0;
          for (const Weight w : i.weights) {
            known(w, weights_);
            width(i.x, weights_[static_cast<size_t>(w)].cols);
            outputs += weights_[static_cast<size_t>(w)].rows;
          }
          width(i.out, outputs);
        } else if constexpr (std::is_same_v<T, NormRopeStore>) {
          known(i.qkv, values_);
          known(i.layer, layers_);
          known(i.rope, ropes_);
          const KVLayer& kv = layers_[static_cast<size_t>(i.layer)].kv;
          require(i.heads >= 1 && i.heads % kv.kv_heads == 0 && i.heads <= kLargest / kv.head_dim,
                  "heads is not a multiple of kv_heads");
          width(i.qkv, (i.heads + 2 * kv.kv_heads) * kv.head_dim);
          width(i.out, i.heads * kv.head_dim);
          require(value(i.qkv).rows == Rows::Step && value(i.out).rows == Rows::Step,
                  "all rows of the step are stored");
          require(2 * static_cast<int64_t>(ropes_[static_cast<size_t>(i.rope)].size()) == kv.head_dim,
                  "a rope has frequencies for another head_dim");
          require((i.query_gain < 0) == (i.key_gain < 0), "queries and keys are normalised, or neither are");
          if (i.query_gain >= 0) {
            gain_of(i.query_gain, kv.head_dim);
            gain_of(i.key_gain, kv.head_dim);
          }
        } else if constexpr (std::is_same_v<T, Attend>) {
          known(i.q, values_);
          known(i.layer, layers_);
          const KVLayer& kv = layers_[static_cast<size_t>(i.layer)].kv;
          require(i.heads >= 1 && i.heads % kv.kv_heads == 0 && i.heads <= kLargest / kv.head_dim,
                  "heads is not a multiple of kv_heads");
          same_rows(i.out, i.q);
          require(!head, "the head has no keys");
          require(i.out != i.q && value(i.out).data != value(i.q).data, "attention cannot be done in place");
          width(i.q, i.heads * kv.head_dim);
          width(i.out, i.heads * kv.head_dim);
        } else if constexpr (std::is_same_v<T, KeepRows>) {
          known(i.x, values_);
          width(i.x, n);
          require(value(i.x).rows == Rows::Step && value(i.out).rows == Rows::Kept, "rows are kept of a whole step");
        } else if constexpr (std::is_same_v<T, GatedGelu>) {
          known(i.x, values_);
          same_rows(i.out, i.x);
          width(i.x, 2 * n);
        } else if constexpr (std::is_same_v<T, Add>) {
          for (const Value v : {i.a, i.b}) {
            known(v, values_);
            same_rows(i.out, v);
            width(v, n);
          }
        } else {
          known(i.x, values_);
          same_rows(i.out, i.x);
          width(i.x, n);
          if constexpr (std::is_same_v<T, AddNorm>) {
            known(i.h, values_);
            same_rows(i.out, i.h);
            width(i.h, n);
          }
          if constexpr (!std::is_same_v<T, Softcap>) {
            gain_of(i.gain, n);
          }
        }
      },
      instruction);
  (head ? head_code_ : body_code_).push_back(std::move(instruction));
}

void Program::finish(Value hidden, Value head_in, Value logits) {
  require_building();
  const auto count = static_cast<Value>(values_.size());
  require(hidden >= 0 && hidden < count && head_in >= 0 && head_in < count && logits >= 0 && logits < count,
          "an instruction names what is not there");
  require(!body_code_.empty() && std::holds_alternative<Embed>(body_code_.front()), "a body begins with embed");
  require(!head_code_.empty(), "a head has an instruction at least");
  require(value(hidden).rows == Rows::Kept && value(head_in).rows == Rows::Head && value(logits).rows == Rows::Head &&
              value(hidden).width == value(head_in).width,
          "the body must give what the head takes");
  hidden_ = hidden;
  head_in_ = head_in;
  logits_ = logits;
  int64_t max_cols = kBlock, max_dim = 2;
  for (const PackedWeight& w : weights_) {
    max_cols = std::max(max_cols, w.cols);
  }
  for (const Layer& layer : layers_) {
    max_dim = std::max(max_dim, layer.kv.head_dim);
  }
  const int64_t most_rows = std::max(sizes_.max_rows, sizes_.max_head_rows);
  angles_ = Memory(static_cast<size_t>(sizes_.max_rows * angle_columns_) * sizeof(float));
  if (std::holds_alternative<Linear>(head_code_.back())) {
    peaks_ = Memory(static_cast<size_t>(sizes_.max_head_rows * peaks_width()) * sizeof(float));
  }
  linear_.emplace(*machine_, sizes_.two_terms, most_rows, max_cols);
  attention_.emplace(*machine_, max_dim);
  if (const auto* head = std::get_if<Linear>(&head_code_.back()); head_code_.size() == 1 && head->weights.size() == 1) {
    const PackedWeight& matrix = weights_[static_cast<size_t>(head->weights.front())];
    if (is_quantized(matrix.format)) {
      best_.emplace(*machine_, matrix, sizes_.two_terms);
    }
  }
  const auto rows = static_cast<size_t>(sizes_.max_rows);
  kept_sequence_.resize(rows);
  kept_first_.resize(rows * limits_.pages.size());
  kept_last_.resize(rows * limits_.pages.size());
  finished_ = true;
}

}  // namespace cabochon
