#include "scale.cuh"

// y[i] += a * x[i] for i < n, any grid.
template <class T>
__global__ void axpy(T a, const T* x, T* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    y[i] += scaled(a, x[i]);
  }
}
