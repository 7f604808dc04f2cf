// Large blocks of memory straight from the system.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace cabochon {

// Owns zeroed bytes that begin on a page, and so on a cache line. A page costs nothing until it is written to.
class Memory {
 public:
  Memory() = default;

  // `huge` asks for pages of megabytes where the system has them: fewer address translations for data read end to end.
  // Throws std::bad_alloc.
  explicit Memory(size_t bytes, bool huge = false) : bytes_(bytes) {
    if (bytes == 0) {
      return;
    }
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      throw std::bad_alloc();
    }
#ifdef MADV_HUGEPAGE
    if (huge) {
      madvise(p, bytes, MADV_HUGEPAGE);
    }
#else
    static_cast<void>(huge);
#endif
    data_ = static_cast<uint8_t*>(p);
  }
  ~Memory() {
    if (data_) {
      munmap(data_, bytes_);
    }
  }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// The next multiple of a cache line.
inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace cabochon
