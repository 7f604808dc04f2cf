// The floating-point environment the arithmetic is defined in.
#pragma once

#include <cfenv>
#include <cstdint>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace cabochon {

// While it lives: rounding to nearest, subnormals kept, no traps. The caller's own mode comes back afterwards: other
// libraries of the process may have set another (flushing subnormals is common).
class FloatMode {
 public:
#if defined(__SSE2__)
  FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatMode() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  FloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_)::"memory");
    set(0);
  }
  ~FloatMode() { set(saved_); }
#else
  FloatMode() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatMode() { std::fesetenv(&saved_); }
#endif
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__SSE2__)
  unsigned saved_;
#elif defined(__aarch64__)
  static void set(uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode) : "memory"); }
  uint64_t saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace cabochon
