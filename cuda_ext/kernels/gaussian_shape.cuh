#pragma once
// A Gaussian's place, shape and reach on a grid, in double precision and node units: mesh_extract/support.py as CUDA.

struct GaussianShape {
  double quat[4], quat_length;    // w x y z of length 1; the length that it was given, 0 for the identity
  double axes[3][3];              // rotation: its columns are the local axes
  double scale[3], inverse[3];    // standard deviations in nodes, and 1 over them
  double mean[3];
  double log_peak, reach;         // log of the opacity; the q at which the Gaussian falls to the cut-off
  double half[3];                 // of the box around its support, a thousandth of a node larger
};

struct GridPlace {
  double lower[3], voxel_size;
};

__device__ __forceinline__ GaussianShape gaussian_shape(
    const float* mean, const float* quat, const float* log_scale, float logit, const GridPlace& grid) {
  GaussianShape g;
  double w = quat[0], x = quat[1], y = quat[2], z = quat[3];
  g.quat_length = sqrt(w * w + x * x + y * y + z * z);
  const double inverse_length = g.quat_length > 0.0 ? 1.0 / g.quat_length : 0.0;
  w = g.quat_length > 0.0 ? w * inverse_length : 1.0;
  x *= inverse_length, y *= inverse_length, z *= inverse_length;
  g.quat[0] = w, g.quat[1] = x, g.quat[2] = y, g.quat[3] = z;
  g.axes[0][0] = 1 - 2 * (y * y + z * z), g.axes[0][1] = 2 * (x * y - w * z), g.axes[0][2] = 2 * (x * z + w * y);
  g.axes[1][0] = 2 * (x * y + w * z), g.axes[1][1] = 1 - 2 * (x * x + z * z), g.axes[1][2] = 2 * (y * z - w * x);
  g.axes[2][0] = 2 * (x * z - w * y), g.axes[2][1] = 2 * (y * z + w * x), g.axes[2][2] = 1 - 2 * (x * x + y * y);
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    g.scale[axis] = fmax(exp((double)log_scale[axis]), (double)SMALLEST_SCALE) / grid.voxel_size;
    g.inverse[axis] = 1.0 / g.scale[axis];
    g.mean[axis] = ((double)mean[axis] - grid.lower[axis]) / grid.voxel_size;
  }
  g.log_peak = -log1p(exp(-(double)logit));
  g.reach = 2.0 * (g.log_peak - log((double)CUTOFF));
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    const double a = g.axes[axis][0] * g.scale[0], b = g.axes[axis][1] * g.scale[1], c = g.axes[axis][2] * g.scale[2];
    g.half[axis] = sqrt((a * a + b * b + c * c) * fmax(g.reach, 0.0)) * (1.0 + 1e-6) + 1e-3;
  }
  return g;
}

// Triangular factors of the inverse covariance, q = (l0 dx)^2 + (l1 dx + l2 dy)^2 + (l3 dx + l4 dy + l5 dz)^2, by
// Gram-Schmidt on the columns of diag(1 / scales) R^T, from the last: precision_factors in support.py.
__device__ __forceinline__ void precision_factors(const GaussianShape& g, double (&l)[6]) {
  double x[3], y[3], z[3];
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    x[k] = g.axes[0][k] * g.inverse[k], y[k] = g.axes[1][k] * g.inverse[k], z[k] = g.axes[2][k] * g.inverse[k];
  }
  l[5] = sqrt(z[0] * z[0] + z[1] * z[1] + z[2] * z[2]);
  l[4] = l[3] = l[1] = 0.0;
#pragma unroll
  for (int k = 0; k < 3; ++k) z[k] /= l[5], l[4] += z[k] * y[k], l[3] += z[k] * x[k];
#pragma unroll
  for (int k = 0; k < 3; ++k) y[k] -= l[4] * z[k], x[k] -= l[3] * z[k];
  l[2] = fmax(sqrt(y[0] * y[0] + y[1] * y[1] + y[2] * y[2]), 1e-300);
#pragma unroll
  for (int k = 0; k < 3; ++k) l[1] += y[k] / l[2] * x[k];
  l[0] = g.inverse[0] * g.inverse[1] * g.inverse[2] / (l[2] * l[5]);
}

constexpr double kLog2E = 1.4426950408889634;
constexpr double kExponentUnit = 0.8493218002880191;  // sqrt(0.5 log2 e): exp(-q / 2) = 2^-(this sqrt(q))^2
constexpr double kSlenderest = 1e3;  // ratio of deviations from which on single precision cannot say where it ends

// The exponent of 2 at which a Gaussian counts as ending where single precision leaves out what it does not reach: with
// 1 % of leeway, and nowhere where that may not do; then its box decides alone. Given its deviations' extremes.
__device__ __forceinline__ float culling_limit(double reach, double longest, double shortest) {
  return longest > kSlenderest * shortest ? 3e38f : (float)(0.5 * reach * kLog2E + 0.01);
}

__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
