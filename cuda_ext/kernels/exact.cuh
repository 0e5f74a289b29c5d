// Double precision in which every product and sum is rounded by itself. The compiler would fuse a * b + c; numba on the
// CPU does not, and pictures that must not differ from the CPU's by a bit are computed with this.
#pragma once

struct Exact {
  double value;
  __device__ Exact() {}
  __device__ Exact(double v) : value(v) {}
};

__device__ inline Exact operator+(Exact a, Exact b) { return Exact(__dadd_rn(a.value, b.value)); }
__device__ inline Exact operator-(Exact a, Exact b) { return Exact(__dsub_rn(a.value, b.value)); }
__device__ inline Exact operator*(Exact a, Exact b) { return Exact(__dmul_rn(a.value, b.value)); }
__device__ inline Exact operator/(Exact a, Exact b) { return Exact(a.value / b.value); }
__device__ inline Exact absolute(Exact a) { return Exact(fabs(a.value)); }
