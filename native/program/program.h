// A flat list of instructions over buffers that are laid out once; how many rows they hold is known only at each run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/kv.h"
#include "memory/memory.h"
#include "program/attention_runner.h"
#include "program/best_runner.h"
#include "program/instructions.h"
#include "program/linear_runner.h"
#include "program/machine.h"
#include "program/step.h"
#include "weights/packed.h"

namespace cabochon {

// Which rows a value has. A program has two parts: the body turns a step into the kept rows' hidden states, the head
// turns hidden states into logits, whoever computed them.
enum class Rows : int32_t { Step = 0, Kept = 1, Head = 2 };

struct ProgramSizes {
  int64_t max_rows;       // of a step
  int64_t max_head_rows;  // of one run of the head
  int64_t columns;        // floats of one row over all values of the body that live at the same time
  int64_t head_columns;   // the same of the head
  bool two_terms;         // activations, as in kernels/linear.h
};

// What has been done since the program was made; exact, whatever the scheduling.
struct Counters {
  int64_t runs = 0;              // of the body
  int64_t rows = 0;              // over all runs
  int64_t pairs = 0;             // of a query (one head of one row) and a key it sees, over all layers
  int64_t kv_bytes_read = 0;     // keys and values that rows see, each row for itself, over all layers and kv heads
  int64_t kv_bytes_written = 0;  // keys and values stored
};

class Program {
 public:
  Program(std::shared_ptr<Machine> machine, const ProgramSizes& sizes);

  // ---- Building: each returns the number by which the thing is known; errors are std::invalid_argument ----

  // A buffer of `width` floats a row from column `place` of its part. Two values may share columns if they never live
  // at the same time.
  Value add_value(int64_t width, int64_t place, Rows rows);
  Weight add_weight(const PackedWeight& weight);
  Gain add_gain(std::vector<float> gain);
  int32_t add_rope(std::vector<float> inv_freq);
  // Layers in order. `group` is the page group, its row in the step's arrays.
  int32_t add_layer(int64_t group, const KVLayer& kv);
  void add(Instruction instruction);
  // The last step of building. `hidden` is what the body gives (its rows kept), `head_in` and `logits` what the head
  // takes and gives.
  void finish(Value hidden, Value head_in, Value logits);

  // ---- Running ----

  // Runs the body, finds the best id after each of the step's best rows and, if asked, runs the head over the hidden
  // states of its logit rows. Returns the first layer whose keys or values did not
  // fit the cache's type (nothing after it has run), or -1. Throws std::invalid_argument if the step is not sound.
  int32_t run(const Step& step, bool with_head);
  // Runs the head over hidden states [rows, D].
  void run_head(const float* hidden, int64_t rows);

  bool finished() const { return finished_; }
  float* hidden() const { return at(hidden_); }
  float* logits() const { return at(logits_); }
  // Kept rows of any other value of the body that still holds them after a run.
  float* kept_rows_of(Value v) const {
    if (v < 0 || static_cast<size_t>(v) >= values_.size() || value(v).rows != Rows::Kept) {
      throw std::invalid_argument("no such value has kept rows");
    }
    return at(v);
  }
  int64_t width_of(Value v) const { return value(v).width; }
  // Of each 16 neighbouring logits of a row (kernels/rows.h): [head rows, groups], or null where there are none, since
  // logits are capped.
  float* peaks() const { return peaks_.bytes() > 0 ? peaks_.as<float>() : nullptr; }
  // Of the last step's best rows: the id with the largest logit, the first of equal ones; -1 if a logit is not finite.
  const std::vector<int32_t>& bests() const { return bests_; }
  int64_t peaks_width() const { return (vocab() + kLanes - 1) / kLanes; }
  int64_t hidden_width() const { return value(hidden_).width; }
  int64_t vocab() const { return value(logits_).width; }
  int64_t groups() const { return static_cast<int64_t>(limits_.pages.size()); }
  int64_t kept() const { return rows_[1]; }
  const ProgramSizes& sizes() const { return sizes_; }
  const Counters& counters() const { return counters_; }
  const std::shared_ptr<Machine>& machine() const { return machine_; }
  size_t bytes() const { return body_.bytes() + head_.bytes() + angles_.bytes() + (best_ ? best_->bytes() : 0); }

 private:
  struct ValueInfo {
    int64_t width;
    Rows rows;
    float* data;
  };
  struct Layer {
    int64_t group;
    KVLayer kv;
  };

  const ValueInfo& value(Value v) const { return values_[static_cast<size_t>(v)]; }
  float* at(Value v) const { return value(v).data; }
  int64_t rows_of(Value v) const { return rows_[static_cast<size_t>(value(v).rows)]; }
  const std::vector<float>& gain(Gain g) const { return gains_[static_cast<size_t>(g)]; }

  void require_building() const;
  void require_finished() const;
  void head(const float* hidden, int64_t rows);

  template <typename Fn>
  void each_row(int64_t rows, int64_t floats, Fn&& fn);
  void prepare_angles(const Step& step);
  void gather_kept(const Step& step);
  void find_bests(const float* hidden, int64_t rows);
  AttendingRows attending(const Step& step, int64_t group, Rows rows);
  void count_attention(const Layer& layer, int64_t heads, const AttendingRows& rows);

  void execute(const Embed& i, const Step* step);
  void execute(const RmsNorm& i, const Step* step);
  void execute(const AddNorm& i, const Step* step);
  void execute(const Add& i, const Step* step);
  void execute(const Linear& i, const Step* step);
  void execute(const NormRopeStore& i, const Step* step);
  void execute(const Attend& i, const Step* step);
  void execute(const GatedGelu& i, const Step* step);
  void execute(const KeepRows& i, const Step* step);
  void execute(const Softcap& i, const Step* step);

  std::shared_ptr<Machine> machine_;
  ProgramSizes sizes_;
  StepLimits limits_;
  Memory body_, head_, angles_, peaks_;
  std::vector<ValueInfo> values_;
  std::vector<PackedWeight> weights_;
  std::vector<std::vector<float>> gains_, ropes_;
  std::vector<int64_t> angle_place_;  // of each rope, in floats for one row; cosines, then sines
  int64_t angle_columns_ = 0;
  std::vector<Layer> layers_;
  std::vector<Instruction> body_code_, head_code_;
  Value hidden_ = -1, head_in_ = -1, logits_ = -1;
  bool finished_ = false;
  std::optional<LinearRunner> linear_;
  std::optional<AttentionRunner> attention_;
  std::optional<BestRunner> best_;

  int64_t rows_[3] = {0, 0, 0};                                  // of the current run, by Rows
  std::vector<int32_t> kept_sequence_, kept_first_, kept_last_;  // kept rows' entries; the latter by group
  std::vector<int32_t> bests_;
  std::atomic<int32_t> failed_layer_{-1};
  Counters counters_;
};

}  // namespace cabochon
