// What the kernels of the rasteriser share: tiles, the entries of a Gaussian in them, ellipses against rectangles.
#pragma once

// One warp draws one tile; a lane has PIXELS_A_LANE pixels of it, four rows apart.
constexpr int kTileWidth = TILE_WIDTH;
constexpr int kTileHeight = 4 * PIXELS_A_LANE;
constexpr unsigned kAllLanes = 0xffffffffu;

// Entries are pairs of a Gaussian in one image and a tile that it reaches. Each has a slot, and the slots of one
// Gaussian in one image follow each other, tile by tile, row by row. A span says which they are:
// x: the first slot; w: first column | first row << 16 | kBig;
// up to 8 x 8 tiles: y, z: one bit for each of the 8 x 8 tiles from the first on, set where the Gaussian reaches it;
// more (kBig): y, z: how many columns and rows of tiles, all of them reached.
constexpr unsigned kBig = 1u << 31;

__device__ __forceinline__ int span_column(const uint4& span) { return span.w & 0xffff; }
__device__ __forceinline__ int span_row(const uint4& span) { return (span.w >> 16) & 0x7fff; }
__device__ __forceinline__ bool span_is_big(const uint4& span) { return span.w & kBig; }

__device__ __forceinline__ unsigned long long span_mask(const uint4& span) {
  return span.y | static_cast<unsigned long long>(span.z) << 32;
}

// How many tiles a Gaussian reaches.
__device__ __forceinline__ unsigned span_size(const uint4& span) {
  return span_is_big(span) ? span.y * span.z : __popcll(span_mask(span));
}

// The slot of the entry in one of the tiles that the Gaussian reaches.
__device__ __forceinline__ unsigned span_slot(const uint4& span, int column, int row) {
  const int x = column - span_column(span), y = row - span_row(span);
  if (span_is_big(span)) return span.x + y * span.y + x;
  return span.x + __popcll(span_mask(span) & ((1ull << (8 * y + x)) - 1));
}

__device__ __forceinline__ float clamped(float value, float low, float high) { return fminf(fmaxf(value, low), high); }

// q of the conic at an offset from the mean, no larger than what any rounding would make of it.
__device__ __forceinline__ float cautious_q(float a, float b, float c, float x, float y) {
  const float slack = 1e-6f * (fabsf(x) + fabsf(b * y));
  const float u = fmaxf(fabsf(x + b * y) - slack, 0.0f);
  return a * u * u + c * y * y;
}

// The least q = a (x + b y)^2 + c y^2 over the rectangle of offsets [x0, x1] x [y0, y1]. q grows along every ray from
// the mean, so that the least lies on an edge that faces the mean; on an edge q is a parabola.
__device__ __forceinline__ float least_q(float a, float b, float c, float x0, float x1, float y0, float y1) {
  const float x = clamped(0.0f, x0, x1), y = clamped(0.0f, y0, y1);  // 0: no edge of that direction faces the mean
  float q = x == 0.0f && y == 0.0f ? 0.0f : 3e38f;
  if (x != 0.0f) q = cautious_q(a, b, c, x, clamped(-a * b * x / (a * b * b + c), y0, y1));
  if (y != 0.0f) q = fminf(q, cautious_q(a, b, c, clamped(-b * y, x0, x1), y));
  return q;
}
