// Gradients of the density field to the Gaussians, one block a Gaussian: ten sums over the nodes of its own support,
// row by row, then the chain rule. The order of the sums is fixed, so every run gives the same bits. What the sums are
// and why: mesh_extract/fields_gradients.py, which is also the reference. Bound by the exponent and ten sums a node.

#include "gaussian_shape.cuh"

constexpr int kThreads = 128;
constexpr int kAlongZ = 8;                    // threads that share a row: 8 nodes are a sector of memory
constexpr int kRowsAtOnce = kThreads / kAlongZ;
constexpr int kSums = 10;                     // of g v, g v y (3), g v y y^T (xx, xy, xz, yy, yz, zz)
constexpr unsigned kAll = 0xffffffffu;

struct Support {  // in node units; exponents are powers of 2
  float l[6], whitening[3][3], log2_peak, limit, rest[3];
  int nearest[3], first[3], last[3];  // nodes of the box, counted from the whole grid's first
};

__device__ Support support_of(const GaussianShape& shape, const int (&grid_first)[3], const int (&grid_last)[3]) {
  Support s;
  double l[6];
  precision_factors(shape, l);
#pragma unroll
  for (int k = 0; k < 6; ++k) s.l[k] = (float)(l[k] * kExponentUnit);
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
#pragma unroll
    for (int k = 0; k < 3; ++k) s.whitening[k][axis] = (float)(shape.axes[axis][k] * shape.inverse[k] * kExponentUnit);
    const double nearest = rint(fmin(fmax(shape.mean[axis], -1e9), 1e9));
    s.nearest[axis] = (int)nearest;
    s.rest[axis] = (float)(shape.mean[axis] - nearest);
    const double first = fmax(ceil(shape.mean[axis] - shape.half[axis]), (double)grid_first[axis]);
    const double last = fmin(floor(shape.mean[axis] + shape.half[axis]), (double)grid_last[axis]);
    s.first[axis] = first <= last ? (int)first : 0;
    s.last[axis] = first <= last && shape.reach >= 0.0 ? (int)last : -1;
  }
  s.log2_peak = (float)(shape.log_peak * kLog2E);
  const double longest = fmax(shape.scale[0], fmax(shape.scale[1], shape.scale[2]));
  const double shortest = fmin(shape.scale[0], fmin(shape.scale[1], shape.scale[2]));
  s.limit = culling_limit(shape.reach, longest, shortest);
  return s;
}

// From a Gaussian's sums to the gradients of its parameters.
__device__ void chain_rule(
    const GaussianShape& g, const double (&sums)[kSums], double voxel_size, float logit,
    float* to_mean, float* to_quat, float* to_log_scale, float* to_logit) {
  const double xx = sums[4], xy = sums[5], xz = sums[6], yy = sums[7], yz = sums[8], zz = sums[9];
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    double total = 0.0;
#pragma unroll
    for (int k = 0; k < 3; ++k) total += g.axes[axis][k] * g.inverse[k] * sums[1 + k];
    to_mean[axis] = (float)(total / voxel_size);
  }
  to_log_scale[0] = (float)xx, to_log_scale[1] = (float)yy, to_log_scale[2] = (float)zz;
  *to_logit = (float)(sums[0] / (1.0 + exp((double)logit)));
  const double a = yz * (g.scale[1] * g.inverse[2] - g.scale[2] * g.inverse[1]);
  const double b = xz * (g.scale[2] * g.inverse[0] - g.scale[0] * g.inverse[2]);
  const double c = xy * (g.scale[0] * g.inverse[1] - g.scale[1] * g.inverse[0]);
  const double w = g.quat[0], x = g.quat[1], y = g.quat[2], z = g.quat[3];
  const double factor = g.quat_length > 0.0 ? 2.0 / g.quat_length : 0.0;
  to_quat[0] = (float)(factor * (-x * a - y * b - z * c));
  to_quat[1] = (float)(factor * (w * a + y * c - z * b));
  to_quat[2] = (float)(factor * (w * b + z * a - x * c));
  to_quat[3] = (float)(factor * (w * c + x * b - y * a));
}

extern "C" __global__ void __launch_bounds__(kThreads) extract_fields_backward(
    const float* __restrict__ means,       // [N, 3] world units; a block a Gaussian
    const float* __restrict__ quats,       // [N, 4] of any length
    const float* __restrict__ log_scales,  // [N, 3]
    const float* __restrict__ logits,      // [N] of the opacities
    double lower_x, double lower_y, double lower_z, double voxel_size,
    int first_x, int size_x, int size_y, int size_z,
    const float* __restrict__ gradient,  // [size_x, size_y, size_z]
    float* __restrict__ to_means, float* __restrict__ to_quats, float* __restrict__ to_log_scales,
    float* __restrict__ to_logits) {  // shapes of the parameters, out
  __shared__ GaussianShape shape;
  __shared__ Support support;
  __shared__ float warp_sums[kThreads / 32][kSums];
  const long long i = blockIdx.x;
  if (threadIdx.x == 0) {
    const GridPlace grid = {{lower_x, lower_y, lower_z}, voxel_size};
    const int grid_first[3] = {first_x, 0, 0}, grid_last[3] = {first_x + size_x - 1, size_y - 1, size_z - 1};
    shape = gaussian_shape(means + 3 * i, quats + 4 * i, log_scales + 3 * i, logits[i], grid);
    support = support_of(shape, grid_first, grid_last);
  }
  __syncthreads();
  const Support s = support;
  const int count_y = s.last[1] - s.first[1] + 1;
  const bool empty = s.last[0] < s.first[0] || s.last[1] < s.first[1] || s.last[2] < s.first[2];
  const long long rows = empty ? 0 : (s.last[0] - s.first[0] + 1ll) * count_y;
  const int along_z = threadIdx.x % kAlongZ;
  float totals[kSums] = {};
  for (long long row = threadIdx.x / kAlongZ; row < rows; row += kRowsAtOnce) {
    const int node_x = s.first[0] + (int)(row / count_y), node_y = s.first[1] + (int)(row % count_y);
    const float dx = (float)(node_x - s.nearest[0]) - s.rest[0], dy = (float)(node_y - s.nearest[1]) - s.rest[1];
    const float in_x = s.l[0] * dx, in_y = s.l[1] * dx + s.l[2] * dy;
    const float left = s.limit - in_x * in_x - in_y * in_y;
    if (left < 0.0f) continue;
    // The nodes of the row that the ellipsoid holds, counted from the one nearest to the mean.
    const float middle = s.rest[2] - (s.l[3] * dx + s.l[4] * dy) / s.l[5], reach = sqrtf(left) / s.l[5] + 0.01f;
    const int first_z = (int)fmaxf(ceilf(middle - reach), (float)(s.first[2] - s.nearest[2]));
    const int last_z = (int)fminf(floorf(middle + reach), (float)(s.last[2] - s.nearest[2]));
    const float* weights = gradient + ((node_x - first_x) * (long long)size_y + node_y) * size_z + s.nearest[2];
    const float row_a = s.whitening[0][0] * dx + s.whitening[0][1] * dy;
    const float row_b = s.whitening[1][0] * dx + s.whitening[1][1] * dy;
    const float row_c = s.whitening[2][0] * dx + s.whitening[2][1] * dy;
    float sums[kSums] = {};  // of the row: added to the totals as one, which keeps long sums exact
    for (int z = first_z + along_z; z <= last_z; z += kAlongZ) {
      const float dz = (float)z - s.rest[2];
      const float a = fmaf(s.whitening[0][2], dz, row_a), b = fmaf(s.whitening[1][2], dz, row_b);
      const float c = fmaf(s.whitening[2][2], dz, row_c);
      const float value = power_of_two(s.log2_peak - fmaf(a, a, fmaf(b, b, c * c)));
      if (value < CUTOFF) continue;
      const float v = value * weights[z], va = v * a, vb = v * b, vc = v * c;
      sums[0] += v, sums[1] += va, sums[2] += vb, sums[3] += vc;
      sums[4] = fmaf(va, a, sums[4]), sums[5] = fmaf(va, b, sums[5]), sums[6] = fmaf(va, c, sums[6]);
      sums[7] = fmaf(vb, b, sums[7]), sums[8] = fmaf(vb, c, sums[8]), sums[9] = fmaf(vc, c, sums[9]);
    }
#pragma unroll
    for (int k = 0; k < kSums; ++k) totals[k] += sums[k];
  }
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    float total = totals[k];
#pragma unroll
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(kAll, total, step);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32][k] = total;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double sums[kSums];
    for (int k = 0; k < kSums; ++k) {
      // The sums used y in units in which the exponent is a power of 2.
      const double unit = k == 0 ? 1.0 : k < 4 ? kExponentUnit : kExponentUnit * kExponentUnit;
      sums[k] = 0.0;
      for (int warp = 0; warp < kThreads / 32; ++warp) sums[k] += warp_sums[warp][k];
      sums[k] /= unit;
    }
    chain_rule(
        shape, sums, voxel_size, logits[i], to_means + 3 * i, to_quats + 4 * i, to_log_scales + 3 * i, to_logits + i);
  }
}
