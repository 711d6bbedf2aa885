#pragma once

// An edit here is noticed at the next start: what the compiler read is part of what it is kept under.
template <class T>
__device__ T scaled(T factor, T value) {
  return factor * value;
}
