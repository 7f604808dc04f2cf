// The parts of the Python module, and the array types they take.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

namespace cabochon {

namespace nb = nanobind;

// Arguments of these types are taken as they are: an array of another type, order or device is a TypeError.
template <typename T, size_t Dimensions>
using Array = nb::ndarray<const T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
using Floats = Array<float, 1>;
using Floats2 = Array<float, 2>;
using Ints = Array<int32_t, 1>;

// What functions that return new arrays give.
template <typename T>
using NewArray = nb::ndarray<nb::numpy, T, nb::c_contig>;

// A new array of the given shape; its memory belongs to the Python object.
template <typename T>
NewArray<T> new_array(std::initializer_list<size_t> shape) {
  size_t count = 1;
  for (const size_t n : shape) {
    count *= n;
  }
  T* data = new T[count ? count : 1];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return NewArray<T>(data, shape, owner);
}

void bind_check(nb::module_& m);
void bind_check_linear(nb::module_& check);
void bind_numerics(nb::module_& m);
void bind_program(nb::module_& m);
void bind_text(nb::module_& m);

}  // namespace cabochon
