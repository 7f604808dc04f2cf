// The integers of one step, and whether they are sound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cabochon {

// [sequences, pages]: the page that holds keys kPage*i ... kPage*i + kPage-1, or -1.
struct PageTable {
  const int32_t* pages;
  int64_t width;
};

// One step. Arrays of page groups are [groups, rows], row-major.
struct Step {
  int64_t rows;
  int64_t sequences;
  int64_t logits;  // rows whose logits are wanted
  int64_t bests;   // rows of which only the best id is wanted
  const int32_t* ids;
  const int32_t* positions;
  const int32_t* sequence_of;
  const int32_t* slots;
  const int32_t* first_key;
  const int32_t* last_key;
  std::vector<PageTable> tables;  // one for each group
  const int32_t* logit_rows;
  const int32_t* best_rows;

  // Rows that the head needs: those of the logits, then the others.
  int64_t kept() const { return logits + bests; }
  int32_t kept_row(int64_t i) const { return i < logits ? logit_rows[i] : best_rows[i - logits]; }
};

struct StepLimits {
  int64_t max_rows;
  int64_t vocab;
  std::vector<int64_t> pages;  // of each group
};

// What is wrong with a step whose arrays have the sizes it says, or nothing. Looks at every integer that is later used
// as an index: a step without fault reads and writes within the arrays, and no two rows of it write to one place.
std::string find_fault(const Step& step, const StepLimits& limits);

}  // namespace cabochon
