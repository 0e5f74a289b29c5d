#pragma once
// The inner loop of the tiled density field: a Gaussian's values at a column of 8 nodes along z. To be
// included after extract_fields_tiles.cuh and gaussian_shape.cuh.

constexpr double kNarrow = 2.0;  // l5^2 above which a column could begin with a value that is 0 in single precision

// Two instructions; a condition around a sum is three. A value is at most 1, so the product is never of 0 and infinity.
__device__ __forceinline__ void add(float& sum, float value) {
  sum = fmaf(value, value >= CUTOFF ? 1.0f : 0.0f, sum);
}

// Add a Gaussian to the column's nodes 0 to 7: at node 4 + k its exponent is log2_row - (u + k l5)^2. From node to
// node the value changes by a factor, and that factor by `ratio`: three powers of two instead of eight. Where l5^2 is
// at most kNarrow, a column with any node above the cut-off has at least 2^-126 at node 4; in all others the bounded
// factors keep every product below what it should be, and so below the cut-off, and none becomes 0 times infinity.
__device__ __forceinline__ void add_wide(
    float (&sum)[kTile], float log2_row, float u, float minus_2_l5, float minus_l5_squared, float ratio) {
  const float middle = power_of_two(fmaf(-u, u, log2_row));
  float up = power_of_two(fminf(fmaf(minus_2_l5, u, minus_l5_squared), 100.0f));
  float down = power_of_two(fminf(fmaf(-minus_2_l5, u, minus_l5_squared), 100.0f));
  add(sum[4], middle);
  float value = middle;
#pragma unroll
  for (int k = 5; k < kTile; ++k) value *= up, up *= ratio, add(sum[k], value);
  value = middle;
#pragma unroll
  for (int k = 3; k >= 0; --k) value *= down, down *= ratio, add(sum[k], value);
}

__device__ __forceinline__ void add_narrow(float (&sum)[kTile], float log2_row, float u, float minus_2_l5) {
#pragma unroll
  for (int k = 0; k < kTile; ++k) {
    const float at = fmaf(minus_2_l5, -0.5f * (k - 4), u);
    add(sum[k], power_of_two(fmaf(-at, at, log2_row)));
  }
}
