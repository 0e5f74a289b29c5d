// GroupNorm of half-precision pictures whose channels lie together (torch.channels_last), with what stands around it in
// a diffusion network: a shift for every picture and channel before it, SiLU after it.
//     out = silu(weight * (x + shift - mean) / sqrt(variance + eps) + bias), mean and variance of a picture's group
// Two passes: moments of slabs of pixels, then the result; the second reads what the first left in the L2 cache.
// Reference: priors/fused_ops.py. Bound by memory: two reads and a write.

#include "half.cuh"

constexpr unsigned kAllLanes = 0xffffffffu;

struct Moments {
  float count, mean, deviations;  // deviations: the sum of squares from the mean
};

// Moments of two sets of values from those of each (Chan, Golub, LeVeque 1979).
__device__ __forceinline__ Moments merged(Moments a, Moments b) {
  const float count = a.count + b.count;
  if (count == 0.0f) return a;
  const float share = b.count / count, distance = b.mean - a.mean;
  return {count, a.mean + distance * share, a.deviations + b.deviations + distance * distance * a.count * share};
}

__device__ __forceinline__ Moments merged_over_warp(Moments own) {
  for (int step = 16; step > 0; step >>= 1) {
    const Moments other = {__shfl_xor_sync(kAllLanes, own.count, step), __shfl_xor_sync(kAllLanes, own.mean, step),
                           __shfl_xor_sync(kAllLanes, own.deviations, step)};
    own = merged(own, other);
  }
  return own;
}

// Grid (slabs, pictures), block a multiple of 32 with at least channels / 8 threads; dynamic shared memory: rows x
// channels x 2 floats, where rows = threads / (channels / 8) pixels are read at once.
extern "C" __global__ void group_norm_moments(
    const Half* __restrict__ x,      // [N, pixels, channels]
    const Half* __restrict__ shift,  // [N, channels], or null
    int pixels, int channels, int groups, int slab,
    float* __restrict__ moments) {  // [N, slabs, groups, 3] out: count, mean, deviations
  extern __shared__ float sums[];
  const int vectors = channels / kVector, rows = blockDim.x / vectors, picture = blockIdx.y;
  const int row = threadIdx.x / vectors, channel = threadIdx.x % vectors * kVector;
  float* squares = sums + rows * channels;
  if (row < rows) {
    const Half* base = x + static_cast<long long>(picture) * pixels * channels + channel;
    float moved[kVector] = {};
    if (shift != nullptr) load(shift + static_cast<long long>(picture) * channels + channel, moved);
    float sum[kVector] = {}, square[kVector] = {};
    const int last = min(pixels, (static_cast<int>(blockIdx.x) + 1) * slab);
#pragma unroll 4
    for (int pixel = blockIdx.x * slab + row; pixel < last; pixel += rows) {
      float values[kVector];
      load(base + static_cast<long long>(pixel) * channels, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float value = values[i] + moved[i];
        sum[i] += value;
        square[i] += value * value;
      }
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      sums[row * channels + channel + i] = sum[i];
      squares[row * channels + channel + i] = square[i];
    }
  }
  __syncthreads();
  const int width = channels / groups, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int first = blockIdx.x * slab;
  const float count = static_cast<float>(max(0, min(pixels - first, slab)) * width);
  for (int group = threadIdx.x / 32; group < groups; group += warps) {
    float sum = 0.0f, square = 0.0f;
    for (int i = lane; i < rows * width; i += 32) {
      const int place = i / width * channels + group * width + i % width;
      sum += sums[place];
      square += squares[place];
    }
    for (int step = 16; step > 0; step >>= 1) {
      sum += __shfl_xor_sync(kAllLanes, sum, step);
      square += __shfl_xor_sync(kAllLanes, square, step);
    }
    if (lane == 0) {
      const long long place = ((static_cast<long long>(picture) * gridDim.x + blockIdx.x) * groups + group) * 3;
      const float mean = count > 0.0f ? sum / count : 0.0f;
      moments[place] = count;
      moments[place + 1] = mean;
      // Not fmaxf, which would make a 0 of what is no number.
      const float deviations = square - sum * mean;
      moments[place + 2] = deviations < 0.0f ? 0.0f : deviations;
    }
  }
}

// Grid and block as above; dynamic shared memory: groups x 2 floats.
extern "C" __global__ void group_norm_apply(
    const Half* __restrict__ x,         // [N, pixels, channels]
    const Half* __restrict__ shift,     // [N, channels], or null
    const float* __restrict__ moments,  // [N, slabs, groups, 3]
    const Half* __restrict__ weight,    // [channels]
    const Half* __restrict__ bias,      // [channels]
    int pixels, int channels, int groups, int slab, float eps, int silu,
    Half* __restrict__ out) {  // [N, pixels, channels] out
  extern __shared__ float scales[];
  float* means = scales + groups;
  const int vectors = channels / kVector, rows = blockDim.x / vectors, picture = blockIdx.y;
  const int width = channels / groups, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int group = threadIdx.x / 32; group < groups; group += warps) {
    Moments all = {};
    for (int i = lane; i < static_cast<int>(gridDim.x); i += 32) {
      const long long place = ((static_cast<long long>(picture) * gridDim.x + i) * groups + group) * 3;
      all = merged(all, {moments[place], moments[place + 1], moments[place + 2]});
    }
    all = merged_over_warp(all);
    if (lane == 0) {
      means[group] = all.mean;
      scales[group] = rsqrtf(all.deviations / all.count + eps);
    }
  }
  __syncthreads();
  const int row = threadIdx.x / vectors, channel = threadIdx.x % vectors * kVector;
  if (row >= rows) return;
  float factor[kVector], offset[kVector], moved[kVector] = {};
  load(weight + channel, factor);
  load(bias + channel, offset);
  if (shift != nullptr) load(shift + static_cast<long long>(picture) * channels + channel, moved);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int group = (channel + i) / width;
    factor[i] *= scales[group];
    offset[i] += factor[i] * (moved[i] - means[group]);
  }
  const long long base = static_cast<long long>(picture) * pixels * channels + channel;
  const int last = min(pixels, (static_cast<int>(blockIdx.x) + 1) * slab);
#pragma unroll 4
  for (int pixel = blockIdx.x * slab + row; pixel < last; pixel += rows) {
    const long long place = base + static_cast<long long>(pixel) * channels;
    float values[kVector];
    load(x + place, values);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float value = factor[i] * values[i] + offset[i];
      values[i] = silu ? value / (1.0f + __expf(-value)) : value;
    }
    store(out + place, values);
  }
}
