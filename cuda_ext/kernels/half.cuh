// Half precision without CUDA's headers: eight values at a time, computed with in single precision.
#pragma once

typedef unsigned short Half;  // float16, or bfloat16 where BFLOAT is 1

constexpr int kVector = 8;  // values a thread reads at once, 16 bytes

__device__ __forceinline__ float widened(Half bits) {
#if BFLOAT
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#endif
}

__device__ __forceinline__ Half narrowed(float value) {
#if BFLOAT
  // To the nearest, ties to even; what is no number stays none.
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Half>(bits >> 16 | 0x40u);
  return static_cast<Half>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#else
  Half bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#endif
}

__device__ __forceinline__ void load(const Half* __restrict__ from, float* values) {
  const uint4 packed = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = widened(static_cast<Half>(words[i] & 0xffffu));
    values[2 * i + 1] = widened(static_cast<Half>(words[i] >> 16));
  }
}

__device__ __forceinline__ void store(Half* __restrict__ to, const float* values) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = static_cast<unsigned>(narrowed(values[2 * i])) |
               static_cast<unsigned>(narrowed(values[2 * i + 1])) << 16;
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}
