// Steps 1 to 3 of rasterize/definition.py for all cameras, and their gradients. Reference: rasterize/projection.py.
//
// Macros: PIXELS_A_LANE, SH_COUNT and the constants of the definition.
#include "rasterize_common.cuh"
#include "rasterize_geometry.cuh"

constexpr int kThreads = 256;        // of project_forward
constexpr int kCamerasAtOnce = LANES_A_GAUSSIAN;  // of project_backward, each with a camera of its own
constexpr int kHead = COUNTER_HEAD;  // words of `counters` before the tiles' counts

// Exclusive sum over the block's threads; `total` gets the whole sum.
__device__ __forceinline__ unsigned block_sum(unsigned value, unsigned* total) {
  __shared__ unsigned warp_sums[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned sum = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const unsigned before = __shfl_up_sync(kAllLanes, sum, offset);
    if (lane >= offset) sum += before;
  }
  __syncthreads();  // the previous call's sums have been read
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  unsigned base = 0, all = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) base += warp_sums[w];
    all += warp_sums[w];
  }
  *total = all;
  return base + sum - value;
}

// First and last + 1 of the tiles that hold pixel centres within `extent` of a position.
__device__ __forceinline__ void tile_range(float position, float extent, int size, int side, int* first, int* end) {
  extent = extent * 1.0001f + 0.001f;  // rounding must not lose a pixel
  const int low = static_cast<int>(ceilf(fmaxf(position - extent - 0.5f, 0.0f)));
  const int high = static_cast<int>(floorf(fminf(position + extent - 0.5f, size - 1.0f)));
  *first = low / side;
  *end = high < low ? *first : high / side + 1;
}

// Whether all parameters are finite, within bounds, and the Gaussian is not too faint; fills scales and opacity.
__device__ __forceinline__ bool load_drawable(
    const float mean[3], const float* quat, const float* log_scale, float logit, const float* sh0, const float* shN,
    float scales[3], float* opacity) {
  *opacity = 1 / (1 + expf(-logit));
  float total = fabsf(logit);  // finite exactly if every parameter is: none is near the largest float
  bool bounded = true;
  for (int k = 0; k < 3; ++k) {
    scales[k] = expf(log_scale[k]);
    bounded = bounded && fabsf(mean[k]) <= MEAN_MAX && scales[k] <= SCALE_MAX;  // false for NaN
    total += 0.0f * log_scale[k] + 0.0f * sh0[k];
  }
  for (int k = 0; k < 4; ++k) total += 0.0f * quat[k];
  for (int k = 0; k < 3 * (SH_COUNT - 1); ++k) total += 0.0f * shN[k];
  // exp turns minus infinity into a standard deviation of 0: 0 * infinity above is NaN.
  return bounded && total < 3e38f && *opacity >= ALPHA_MIN;
}

// Count what a warp's big Gaussians reach, all lanes together.
__device__ __forceinline__ void count_big(bool big, const uint4& span, unsigned* image_counts, int columns) {
  for (unsigned left = __ballot_sync(kAllLanes, big); left; left &= left - 1) {
    const int source = __ffs(left) - 1;
    const unsigned w = __shfl_sync(kAllLanes, span.y, source), h = __shfl_sync(kAllLanes, span.z, source);
    const unsigned corner = __shfl_sync(kAllLanes, span.w, source);
    const unsigned long long address =
        __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(image_counts), source);
    unsigned* counts = reinterpret_cast<unsigned*>(address);
    const int x0 = corner & 0xffff, y0 = (corner >> 16) & 0x7fff;
    for (unsigned i = threadIdx.x % 32; i < w * h; i += 32)
      atomicAdd(&counts[static_cast<size_t>(y0 + i / w) * columns + x0 + i % w], 1u);
  }
}

// One thread a Gaussian in one image. The block that ends last sums the tiles' counts up.
extern "C" __global__ void __launch_bounds__(kThreads) project_forward(
    const float* __restrict__ means, const float* __restrict__ quats, const float* __restrict__ log_scales,
    const float* __restrict__ logits, const float* __restrict__ sh0, const float* __restrict__ shN,
    const float* __restrict__ viewmats, const float* __restrict__ Ks, int cameras, int count, int width, int height,
    int columns, int rows,
    float2* __restrict__ means2d,        // [C, N] out
    float4* __restrict__ packed,         // [C, N, 2] out: conic's factors, opacity; depth, colour
    int* __restrict__ radii,             // [C, N] out
    uint4* __restrict__ spans,           // [C, N] out
    unsigned* counters,                  // zeroed; two words: entries; blocks that ended; -; [C, rows, columns] counts
    unsigned* __restrict__ tile_begins,  // [C * rows * columns + 1] out: where each tile's entries begin
    unsigned long long* host_entries,    // out, in the host's memory: how many entries there are
    int keep_largest) {                  // 1: or were at any earlier launch
  const int index = blockIdx.x * kThreads + threadIdx.x;
  unsigned long long* entries = reinterpret_cast<unsigned long long*>(counters);
  unsigned* tile_counts = counters + kHead;
  uint4 span = make_uint4(0, 0, 0, 0);
  unsigned* image_counts = tile_counts;
  if (index < cameras * count) {
    const int c = index / count, g = index % count;
    image_counts += static_cast<size_t>(c) * rows * columns;
    float2 mean2d = make_float2(0, 0);
    float4 shape = make_float4(0, 0, 0, 0), shade = make_float4(0, 0, 0, 0);
    int radius = 0;
    const float mean[3] = {means[3 * static_cast<size_t>(g)], means[3 * static_cast<size_t>(g) + 1],
                           means[3 * static_cast<size_t>(g) + 2]};
    const float* higher = shN + static_cast<size_t>(g) * 3 * (SH_COUNT - 1);
    const float* base = sh0 + static_cast<size_t>(g) * 3;
    const float* quat = quats + static_cast<size_t>(g) * 4;
    float scales[3], opacity;
    const Camera camera = load_camera(viewmats, Ks, c);
    double point[3];
    camera_point(camera, mean, point);
    const bool drawable = load_drawable(
        mean, quat, log_scales + static_cast<size_t>(g) * 3, logits[g], base, higher, scales, &opacity);
    if (drawable && point[2] > static_cast<double>(NEAR)) {
      const Rotation rotation = load_rotation(quat);
      const Footprint f = footprint(camera, point, rotation.matrix, scales, width, height);
      const float reach = 2 * logf(opacity / ALPHA_MIN);
      const float reach_x = sqrtf(reach * f.cov_x), reach_y = sqrtf(reach * f.cov_y);
      const double over_z = 1 / point[2];
      const double u = camera.focal[0] * point[0] * over_z + camera.centre[0];
      const double v = camera.focal[1] * point[1] * over_z + camera.centre[1];
      if (u + reach_x > 0 && u - reach_x < width && v + reach_y > 0 && v - reach_y < height) {
        mean2d = make_float2(static_cast<float>(u), static_cast<float>(v));
        radius = static_cast<int>(ceilf(fminf(fmaxf(fmaxf(reach_x, reach_y), 1.0f), 1073741824.0f)));
        shape.x = f.cov_y / f.det, shape.y = -f.cov_xy / f.cov_y;
        shape.z = 1 / f.cov_y, shape.w = opacity;
        float direction[3], basis[SH_COUNT], color[3];
        view_direction(camera, mean, direction);
        sh_basis(direction, basis);
        for (int k = 0; k < 3; ++k) {
          color[k] = 0.5f + basis[0] * base[k];
          for (int j = 1; j < SH_COUNT; ++j) color[k] += basis[j] * higher[3 * (j - 1) + k];
        }
        shade = make_float4(static_cast<float>(point[2]), fmaxf(color[0], 0.0f), fmaxf(color[1], 0.0f),
                            fmaxf(color[2], 0.0f));

        int x0, x1, y0, y1;
        tile_range(mean2d.x, reach_x, width, kTileWidth, &x0, &x1);
        tile_range(mean2d.y, reach_y, height, kTileHeight, &y0, &y1);
        const int w = x1 - x0, h = y1 - y0;
        if (w > 0 && h > 0) {
          span.w = x0 | y0 << 16;
          if (w > 8 || h > 8) {
            span.y = w, span.z = h, span.w |= kBig;
          } else {
            const float limit = reach * 1.0002f + 0.01f;
            unsigned long long mask = 0;
            for (int y = 0; y < h; ++y)
              for (int x = 0; x < w; ++x) {
                const float left = kTileWidth * (x0 + x) + 0.5f - mean2d.x;
                const float top = kTileHeight * (y0 + y) + 0.5f - mean2d.y;
                const float q = least_q(shape.x, shape.y, shape.z, left, left + (kTileWidth - 1), top,
                                        top + (kTileHeight - 1));
                if (q > limit) continue;
                mask |= 1ull << (8 * y + x);
                atomicAdd(&image_counts[static_cast<size_t>(y0 + y) * columns + x0 + x], 1u);
              }
            span.y = static_cast<unsigned>(mask), span.z = static_cast<unsigned>(mask >> 32);
          }
        }
      }
    }
    means2d[index] = mean2d, radii[index] = radius;
    packed[2 * static_cast<size_t>(index)] = shape, packed[2 * static_cast<size_t>(index) + 1] = shade;
  }
  count_big(span_is_big(span), span, image_counts, columns);

  __shared__ unsigned block_base;
  __shared__ bool is_last;
  unsigned block_total;
  const unsigned before = block_sum(span_size(span), &block_total);
  if (threadIdx.x == 0) {
    // In any order: slots only have to be different ones.
    block_base = static_cast<unsigned>(atomicAdd(entries, static_cast<unsigned long long>(block_total)));
  }
  __syncthreads();
  span.x = block_base + before;
  if (index < cameras * count) spans[index] = span;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&counters[2], 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const int tiles = cameras * rows * columns, share = (tiles + kThreads - 1) / kThreads;
  const int from = min(tiles, share * static_cast<int>(threadIdx.x)), to = min(tiles, from + share);
  unsigned sum = 0, all;
#pragma unroll 8
  for (int t = from; t < to; ++t) sum += __ldcg(&tile_counts[t]);
  unsigned begin = block_sum(sum, &all);
#pragma unroll 8
  for (int t = from; t < to; ++t) {
    tile_begins[t] = begin;
    begin += __ldcg(&tile_counts[t]);
  }
  if (threadIdx.x == 0) {
    tile_begins[tiles] = all;
    const unsigned long long now = __ldcg(entries);
    if (!keep_largest || *host_entries < now) *host_entries = now;
  }
}

__device__ __forceinline__ float sum_over_cameras(float value) {
  for (int offset = kCamerasAtOnce / 2; offset; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

// Gradients of one Gaussian from one camera, added up.
struct Gradients {
  float mean[3], log_scale[3], rotation[3][3];
  float opacity, sh[SH_COUNT][3];
};

__device__ __forceinline__ void add_camera(
    Gradients& sum, const Camera& camera, const float mean[3], const Rotation& rotation, const float scales[3],
    const float* shN, const float4 shade, const float2 g_mean2d, const float4 g_shape, const float4 g_shade, int width,
    int height) {
  double point[3];
  camera_point(camera, mean, point);
  const float z = static_cast<float>(point[2]);
  const Footprint f = footprint(camera, point, rotation.matrix, scales, width, height);

  // The conic's factors a, b, d are cov_y / det, -cov_xy / cov_y, 1 / cov_y, and cov = M M^T + EPS2D with
  // M = axes diag(scales). Everything follows from the columns m of M and from e = m_x + b m_y, the part of m_x that
  // does not lean with m_y; of a needle little is left of it, hence from the minors of M and not by that difference.
  const float a = f.cov_y / f.det, b = -f.cov_xy / f.cov_y, d = 1 / f.cov_y;
  const float ga = a * a * g_shape.x, gb = d * g_shape.y, gd = d * d * g_shape.z;
  float g_axes[2][3];
  for (int k = 0; k < 3; ++k) {
    const float m_x = f.axes[0][k] * scales[k], m_y = f.axes[1][k] * scales[k];
    const int next = (k + 1) % 3, other = (k + 2) % 3;
    const float e = d * (EPS2D * m_x + f.axes[1][next] * scales[next] * f.areas[k] -
                        f.axes[1][other] * scales[other] * f.areas[other]);
    const float g_x = -2 * ga * e - gb * m_y, g_y = b * g_x - gb * e - 2 * gd * m_y;
    sum.log_scale[k] -= 2 * (ga * e * e + gb * e * m_y + gd * m_y * m_y);
    g_axes[0][k] = g_x * scales[k], g_axes[1][k] = g_y * scales[k];
  }
  float g_point[3] = {0, 0, g_shade.x};
  for (int i = 0; i < 2; ++i) {
    float g_diagonal = 0, g_last = 0;
    for (int j = 0; j < 3; ++j) {
      float g_linear = 0;
      for (int k = 0; k < 3; ++k) {
        g_linear += g_axes[i][k] * rotation.matrix[j][k];
        sum.rotation[j][k] += f.linear[i][j] * g_axes[i][k];
      }
      g_diagonal += g_linear * camera.view[i][j];
      g_last += g_linear * camera.view[2][j];
    }
    float g_slope = camera.focal[i] * (i == 0 ? g_mean2d.x : g_mean2d.y);
    if (f.inside[i]) g_slope -= f.over_z[i] * g_last;
    g_point[i] = g_slope / z;
    g_point[2] -= (g_slope * f.slope[i] + g_diagonal * f.over_z[i] + g_last * f.last[i]) / z;
  }
  for (int j = 0; j < 3; ++j)
    for (int i = 0; i < 3; ++i) sum.mean[j] += camera.view[i][j] * g_point[i];

  float direction[3], basis[SH_COUNT], along[SH_COUNT], g_direction[3];
  const float distance = view_direction(camera, mean, direction);
  sh_basis(direction, basis);
  // A colour that is cut off at black has no gradient.
  const float g_color[3] = {shade.y > 0 ? g_shade.y : 0, shade.z > 0 ? g_shade.z : 0, shade.w > 0 ? g_shade.w : 0};
  for (int j = 0; j < SH_COUNT; ++j) {
    along[j] = 0;
    for (int k = 0; k < 3; ++k) {
      sum.sh[j][k] += basis[j] * g_color[k];
      if (j > 0) along[j] += shN[3 * (j - 1) + k] * g_color[k];
    }
  }
  if constexpr (SH_COUNT > 1) {
    sh_direction_gradient(direction, along, g_direction);
    const float radial =
        direction[0] * g_direction[0] + direction[1] * g_direction[1] + direction[2] * g_direction[2];
    for (int j = 0; j < 3; ++j) sum.mean[j] += (g_direction[j] - direction[j] * radial) / distance;
  }
}

// Gradient of the quaternion from that of its matrix, through the normalisation.
__device__ __forceinline__ void quaternion_gradient(const Rotation& r, const float g[3][3], float out[4]) {
  const float w = r.unit[0], x = r.unit[1], y = r.unit[2], z = r.unit[3];
  const float gradient[4] = {
      2 * (z * (g[1][0] - g[0][1]) + y * (g[0][2] - g[2][0]) + x * (g[2][1] - g[1][2])),
      2 * (y * (g[0][1] + g[1][0]) + z * (g[0][2] + g[2][0]) + w * (g[2][1] - g[1][2]) - 2 * x * (g[1][1] + g[2][2])),
      2 * (x * (g[0][1] + g[1][0]) + z * (g[1][2] + g[2][1]) + w * (g[0][2] - g[2][0]) - 2 * y * (g[0][0] + g[2][2])),
      2 * (x * (g[0][2] + g[2][0]) + y * (g[1][2] + g[2][1]) + w * (g[1][0] - g[0][1]) - 2 * z * (g[0][0] + g[1][1]))};
  float radial = 0;
  for (int k = 0; k < 4; ++k) radial += r.unit[k] * gradient[k];
  for (int k = 0; k < 4; ++k)
    out[k] = r.length > 0 ? (gradient[k] - r.unit[k] * radial) / r.length : 0.0f;
}

// kCamerasAtOnce lanes a Gaussian, each with every kCamerasAtOnce-th camera; sums run in a fixed order.
extern "C" __global__ void __launch_bounds__(128) project_backward(
    const float* __restrict__ means, const float* __restrict__ quats, const float* __restrict__ log_scales,
    const float* __restrict__ logits, const float* __restrict__ shN, const float* __restrict__ viewmats,
    const float* __restrict__ Ks, int cameras, int count, int width, int height,
    const float4* __restrict__ packed,     // [C, N, 2]
    const int* __restrict__ radii,         // [C, N]
    const float2* __restrict__ g_means2d,  // [C, N], or null: zeros
    const float4* __restrict__ g_packed,   // [C, N, 2], or null: zeros
    float* __restrict__ g_means, float* __restrict__ g_quats, float* __restrict__ g_log_scales,
    float* __restrict__ g_logits, float* __restrict__ g_sh0, float* __restrict__ g_shN) {
  const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t g = thread / kCamerasAtOnce;
  const int lane = thread % kCamerasAtOnce;
  const bool valid = g < static_cast<size_t>(count);
  Gradients sum = {};
  Rotation rotation = {};
  float opacity_slope = 0;
  bool seen = false;
  if (valid) {
    const float mean[3] = {means[3 * g], means[3 * g + 1], means[3 * g + 2]};
    rotation = load_rotation(quats + 4 * g);
    float scales[3];
    for (int k = 0; k < 3; ++k) scales[k] = expf(log_scales[3 * g + k]);
    const float logit = logits[g];  // sigmoid's slope as a product, which does not cancel where it is nearly 1
    opacity_slope = 1 / (1 + expf(-logit)) / (1 + expf(logit));
    for (int c = lane; c < cameras; c += kCamerasAtOnce) {
      const size_t at = static_cast<size_t>(c) * count + g;
      if (radii[at] == 0) continue;
      seen = true;
      float2 g_mean2d = make_float2(0, 0);
      float4 g_shape = make_float4(0, 0, 0, 0), g_shade = make_float4(0, 0, 0, 0);
      if (g_means2d) g_mean2d = g_means2d[at];
      if (g_packed) g_shape = g_packed[2 * at], g_shade = g_packed[2 * at + 1];
      sum.opacity += g_shape.w;
      add_camera(sum, load_camera(viewmats, Ks, c), mean, rotation, scales, shN + g * 3 * (SH_COUNT - 1),
                 packed[2 * at + 1], g_mean2d, g_shape, g_shade, width, height);
    }
  }
  float g_quat[4] = {0, 0, 0, 0};
  if (seen) quaternion_gradient(rotation, sum.rotation, g_quat);  // else it may not even be finite
  float g_mean[3], g_log_scale[3];
  for (int k = 0; k < 3; ++k) {
    g_mean[k] = sum_over_cameras(sum.mean[k]);
    g_log_scale[k] = sum_over_cameras(sum.log_scale[k]);
  }
  for (int k = 0; k < 4; ++k) g_quat[k] = sum_over_cameras(g_quat[k]);
  const float g_opacity = sum_over_cameras(sum.opacity);
  if (valid && lane == 0) {
    for (int k = 0; k < 3; ++k) g_means[3 * g + k] = g_mean[k], g_log_scales[3 * g + k] = g_log_scale[k];
    for (int k = 0; k < 4; ++k) g_quats[4 * g + k] = g_quat[k];
    g_logits[g] = g_opacity == 0 ? 0 : g_opacity * opacity_slope;  // a logit may not be finite
  }
#pragma unroll
  for (int j = 0; j < SH_COUNT; ++j)
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      const float g_sh = sum_over_cameras(sum.sh[j][k]);
      if (!valid || lane != (3 * j + k) % kCamerasAtOnce) continue;
      if (j == 0) {
        g_sh0[3 * g + k] = g_sh;
      } else {
        g_shN[g * 3 * (SH_COUNT - 1) + 3 * (j - 1) + k] = g_sh;
      }
    }
}
