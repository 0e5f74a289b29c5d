// What stands between the matrix products of a diffusion network, each in one pass over half-precision values.
// References: priors/fused_ops.py. Bound by memory.
#include "half.cuh"

// out = a + b + bias, the bias one value a channel; channels lie together.
extern "C" __global__ void add_biased(
    const Half* __restrict__ a, const Half* __restrict__ b, const Half* __restrict__ bias,
    long long vectors,  // of kVector values
    int channels, Half* __restrict__ out)
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  float sum[kVector], more[kVector], constant[kVector];
  load(a + i * kVector, sum);
  load(b + i * kVector, more);
  load(bias + i * kVector % channels, constant);
#pragma unroll
  for (int k = 0; k < kVector; ++k) sum[k] += more[k] + constant[k];
  store(out + i * kVector, sum);
}

// out = value * gelu(gate) of rows [value, gate], gelu(g) = g (1 + erf(g / sqrt(2))) / 2 (arXiv:2002.05202).
extern "C" __global__ void geglu(
    const Half* __restrict__ x,  // [rows, 2 channels]
    long long vectors,           // of the result
    int channels, Half* __restrict__ out)  // [rows, channels]
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  const long long row = i * kVector / channels;
  const Half* from = x + i * kVector + row * channels;  // the row's value: as many gates have been passed as rows
  float value[kVector], gate[kVector];
  load(from, value);
  load(from + channels, gate);
#pragma unroll
  for (int k = 0; k < kVector; ++k) value[k] *= 0.5f * gate[k] * (1.0f + erff(gate[k] * 0.70710678f));
  store(out + i * kVector, value);
}
