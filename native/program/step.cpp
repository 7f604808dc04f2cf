#include "program/step.h"

#include <algorithm>

#include "kernels/kv.h"

namespace cabochon {
namespace {

std::string at_row(const char* what, int64_t row, int64_t value, const char* why) {
  return std::string(what) + " of row " + std::to_string(row) + " is " + std::to_string(value) + ": " + why;
}

bool ascend(const int32_t* rows, int64_t count, int64_t below) {
  for (int64_t i = 0, previous = -1; i < count; previous = rows[i++]) {
    if (rows[i] <= previous || rows[i] >= below) {
      return false;
    }
  }
  return true;
}

std::string find_fault_in_rows(const Step& step, const StepLimits& limits) {
  int32_t previous = 0;
  for (int64_t row = 0; row < step.rows; ++row) {
    if (step.ids[row] < 0 || step.ids[row] >= limits.vocab) {
      return at_row("the id", row, step.ids[row], "outside the vocabulary");
    }
    if (step.positions[row] < 0) {
      return at_row("the position", row, step.positions[row], "negative");
    }
    if (step.sequence_of[row] < previous || step.sequence_of[row] >= step.sequences) {
      return at_row("the sequence", row, step.sequence_of[row], "not ascending, or without a page table");
    }
    previous = step.sequence_of[row];
  }
  if (!ascend(step.logit_rows, step.logits, step.rows)) {
    return "logit_rows are not ascending rows of the step";
  }
  if (!ascend(step.best_rows, step.bests, step.rows)) {
    return "best_rows are not ascending rows of the step";
  }
  if (step.kept() > step.rows) {
    return "logit_rows and best_rows are more than the step has";
  }
  return {};
}

// The first row whose slot an earlier one has, or -1: two threads would write to one place.
int64_t row_without_own_slot(const int32_t* slots, int64_t rows) {
  const auto not_above = [](int32_t a, int32_t b) { return a >= b; };
  if (std::adjacent_find(slots, slots + rows, not_above) == slots + rows) {
    return -1;  // ascending, as a rule
  }
  std::vector<int32_t> sorted(slots, slots + rows);
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) {
    return -1;
  }
  int64_t row = 1;
  while (std::find(slots, slots + row, slots[row]) == slots + row) {
    ++row;
  }
  return row;
}

std::string find_fault_in_group(const Step& step, int64_t group, int64_t pages) {
  const int32_t* slots = step.slots + group * step.rows;
  const int32_t* first_key = step.first_key + group * step.rows;
  const int32_t* last_key = step.last_key + group * step.rows;
  const PageTable& table = step.tables[static_cast<size_t>(group)];
  // Neighbouring rows see nearly the same pages: those known to be sound are not looked at again.
  int64_t known_first = 0, known_end = 0;
  for (int64_t row = 0; row < step.rows; ++row) {
    if (slots[row] < 0 || slots[row] >= pages * kPage) {
      return at_row("the slot", row, slots[row], "outside the KV store");
    }
    if (first_key[row] < 0 || last_key[row] < first_key[row] || last_key[row] >= table.width * kPage) {
      return at_row("the last key", row, last_key[row], "before the first, or outside the page table");
    }
    if (row > 0 && step.sequence_of[row] != step.sequence_of[row - 1]) {
      known_first = known_end = 0;
    }
    const int64_t first = first_key[row] / kPage, end = last_key[row] / kPage + 1;
    const int32_t* own = table.pages + step.sequence_of[row] * table.width;
    for (int64_t page = first; page < end; ++page) {
      if (page >= known_first && page < known_end) {
        page = known_end - 1;
      } else if (own[page] < 0 || own[page] >= pages) {
        return at_row("a page", row, own[page], "needed by its keys, but not in the KV store");
      }
    }
    const bool joins = first <= known_end && known_first <= end;
    known_first = joins && known_first < first ? known_first : first;
    known_end = joins && known_end > end ? known_end : end;
  }
  if (const int64_t row = row_without_own_slot(slots, step.rows); row >= 0) {
    return at_row("the slot", row, slots[row], "another row's as well");
  }
  return {};
}

}  // namespace

std::string find_fault(const Step& step, const StepLimits& limits) {
  if (step.rows < 1 || step.rows > limits.max_rows) {
    return "a step of " + std::to_string(step.rows) + " rows; there is room for 1 to " +
           std::to_string(limits.max_rows);
  }
  if (step.tables.size() != limits.pages.size()) {
    return "as many page tables as page groups are needed";
  }
  std::string fault = find_fault_in_rows(step, limits);
  for (size_t group = 0; fault.empty() && group < limits.pages.size(); ++group) {
    fault = find_fault_in_group(step, static_cast<int64_t>(group), limits.pages[group]);
  }
  return fault;
}

}  // namespace cabochon
