// Steps 4 to 6 of rasterize/definition.py, and their gradients. Reference: rasterize/reference.py.
//
// One warp a tile: it takes the tile's list 32 entries at a time through shared memory, and kGroup of them at a time
// through its registers, so that their exponentials do not wait for each other; the next 32 are on their way meanwhile.
// The backward pass runs back to front. What the lanes of a warp have to add up, 10 sums an entry, is added up by
// exchanging halves: 10 shuffles an entry where one sum at a time would take 50.
//
// Macros: PIXELS_A_LANE and the constants of the definition.
#include "rasterize_common.cuh"

constexpr int kGroup = 4;   // entries in flight
constexpr int kSums = SUMS;  // of an entry
constexpr float kHalfLog2E = 0.72134752044448170f;

// One entry as the pixels need it, in shared memory.
struct Entries {
  float4 shape[32];  // position; -a log2(e) / 2; b
  float4 shade[32];  // -c log2(e) / 2; log2 of the opacity; depth; red
  float2 rest[32];   // green, blue
};

struct Record {
  float2 mean;
  float4 shape, shade;  // as in `packed`
};

__device__ __forceinline__ Record load_record(const float2* means2d, const float4* packed, size_t at) {
  return Record{means2d[at], packed[2 * at], packed[2 * at + 1]};
}

__device__ __forceinline__ void store_record(Entries& entries, const Record& r, int lane, bool valid) {
  entries.shape[lane] = make_float4(r.mean.x, r.mean.y, -kHalfLog2E * r.shape.x, r.shape.y);
  const float opacity = valid ? r.shape.w : 0.0f;  // log2 is minus infinity: nothing is drawn
  entries.shade[lane] = make_float4(-kHalfLog2E * r.shape.z, log2f(opacity), r.shade.x, r.shade.y);
  entries.rest[lane] = make_float2(r.shade.z, r.shade.w);
}

__device__ __forceinline__ float exp2_approximate(float x) {  // within 2 units in the last place; denormals are 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// opacity exp(-q / 2). Written out so that forward and backward round alike.
__device__ __forceinline__ float unclamped_alpha(const float4& shape, const float4& shade, float u, float dy) {
  const float across = __fmaf_rn(__fmul_rn(shade.x, dy), dy, shade.y);
  return exp2_approximate(__fmaf_rn(__fmul_rn(shape.z, u), u, across));
}

// 1 / x to within a unit in the last place, for x in [0.001, 1].
__device__ __forceinline__ float reciprocal(float x) {
  const float guess = __fdividef(1.0f, x);
  return __fmaf_rn(guess, __fmaf_rn(-x, guess, 1.0f), guess);
}

// What a warp draws.
struct Tile {
  int image, column, row;
  unsigned begin, end;  // of its list
};

__device__ __forceinline__ Tile this_tile(const unsigned* tile_begins, unsigned capacity, int columns, int rows) {
  const int within = blockIdx.x % (columns * rows);
  return Tile{static_cast<int>(blockIdx.x / (columns * rows)), within % columns, within / columns,
              min(tile_begins[blockIdx.x], capacity), min(tile_begins[blockIdx.x + 1], capacity)};
}

extern "C" __global__ void __launch_bounds__(32) draw_forward(
    const unsigned* __restrict__ tile_begins, unsigned capacity, const unsigned long long* __restrict__ keys,
    const float2* __restrict__ means2d, const float4* __restrict__ packed,
    const float* __restrict__ backgrounds, int background_stride, int count, int width, int height, int columns,
    int rows,
    float* __restrict__ rgb, float* __restrict__ alpha, float* __restrict__ depth,  // [C, H, W, 3], [C, H, W] out
    float* __restrict__ transmittances,  // [C, H, W] out, at the end of each pixel
    int* __restrict__ last_entries) {    // [C, H, W] out, last entry drawn, from the start of the list; -1: none
  __shared__ Entries entries;
  const Tile tile = this_tile(tile_begins, capacity, columns, rows);
  const int lane = threadIdx.x, x = kTileWidth * tile.column + lane % 8, y = kTileHeight * tile.row + lane / 8;
  const size_t image_start = static_cast<size_t>(tile.image) * count;
  const float px = x + 0.5f;
  float transmittance[PIXELS_A_LANE], red[PIXELS_A_LANE], green[PIXELS_A_LANE], blue[PIXELS_A_LANE], z[PIXELS_A_LANE];
  int last[PIXELS_A_LANE];
  bool open[PIXELS_A_LANE];  // more may be drawn
#pragma unroll
  for (int p = 0; p < PIXELS_A_LANE; ++p) {
    transmittance[p] = 1, red[p] = 0, green[p] = 0, blue[p] = 0, z[p] = 0, last[p] = -1;
    open[p] = x < width && y + 4 * p < height;
  }

  const int length = tile.end > tile.begin ? tile.end - tile.begin : 0;
  const unsigned long long* list = keys + tile.begin;
  Record record = {};
  unsigned next_member = 0;  // the record after `record` is loaded while `record` is drawn, its index a step before
  if (lane < length) record = load_record(means2d, packed, image_start + static_cast<unsigned>(list[lane]));
  if (32 + lane < length) next_member = static_cast<unsigned>(list[32 + lane]);
  for (int base = 0; base < length; base += 32) {
    __syncwarp();
    store_record(entries, record, lane, base + lane < length);
    __syncwarp();
    if (base + 32 + lane < length) record = load_record(means2d, packed, image_start + next_member);
    if (base + 64 + lane < length) next_member = static_cast<unsigned>(list[base + 64 + lane]);
    const int here = min(32, length - base);
    for (int j = 0; j < here; j += kGroup) {
      float unclamped[kGroup][PIXELS_A_LANE];
      float4 shape[kGroup], shade[kGroup];
      float2 rest[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        shape[i] = entries.shape[j + i], shade[i] = entries.shade[j + i], rest[i] = entries.rest[j + i];
        const float dx = px - shape[i].x;
#pragma unroll
        for (int p = 0; p < PIXELS_A_LANE; ++p) {
          const float dy = (y + 4 * p + 0.5f) - shape[i].y;
          unclamped[i][p] = unclamped_alpha(shape[i], shade[i], __fmaf_rn(shape[i].w, dy, dx), dy);
        }
      }
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
#pragma unroll
        for (int p = 0; p < PIXELS_A_LANE; ++p) {
          const float drawn = fminf(unclamped[i][p], ALPHA_MAX);
          const float after = transmittance[p] - transmittance[p] * drawn;
          const bool reached = open[p] && unclamped[i][p] >= ALPHA_MIN;
          const bool kept = reached && after >= TRANSMITTANCE_MIN;
          const float weight = kept ? transmittance[p] * drawn : 0.0f;
          open[p] = open[p] && kept == reached;
          if (kept) transmittance[p] = after, last[p] = base + j + i;
          red[p] += weight * shade[i].w, green[p] += weight * rest[i].x, blue[p] += weight * rest[i].y;
          z[p] += weight * shade[i].z;
        }
    }
    bool any_open = false;
#pragma unroll
    for (int p = 0; p < PIXELS_A_LANE; ++p) any_open = any_open || open[p];
    if (!__any_sync(kAllLanes, any_open)) break;
  }

  const float* background = backgrounds + static_cast<size_t>(tile.image) * background_stride;
#pragma unroll
  for (int p = 0; p < PIXELS_A_LANE; ++p) {
    if (x >= width || y + 4 * p >= height) continue;
    const size_t at = (static_cast<size_t>(tile.image) * height + y + 4 * p) * width + x;
    rgb[3 * at] = red[p] + transmittance[p] * background[0];
    rgb[3 * at + 1] = green[p] + transmittance[p] * background[1];
    rgb[3 * at + 2] = blue[p] + transmittance[p] * background[2];
    alpha[at] = 1 - transmittance[p], depth[at] = z[p];
    transmittances[at] = transmittance[p], last_entries[at] = last[p];
  }
}

// Lanes kOffset apart exchange halves of the kCount sums that each holds: on return each holds half as many, of both.
template <int kOffset, int kCount>
__device__ __forceinline__ void exchange_halves(float* sums, int lane) {
  constexpr int kKept = (kCount + 1) / 2;
  const bool upper = lane & kOffset;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const float other = i + kKept < kCount ? sums[i + kKept] : 0.0f;
    const float sent = upper ? sums[i] : other, kept = upper ? other : sums[i];
    sums[i] = kept + __shfl_xor_sync(kAllLanes, sent, kOffset);
  }
}

__device__ constexpr int halved(int count) { return (count + 1) / 2; }
constexpr int kAll = kGroup * kSums, kHalf = halved(kAll), kQuarter = halved(kHalf), kEighth = halved(kQuarter);
constexpr int kSixteenth = halved(kEighth), kFinal = halved(kSixteenth);  // kFinal: sums that a lane holds in the end

// Add up kAll sums over the lanes of a warp; afterwards the first kFinal are those from owned.x to owned.y - 1.
__device__ __forceinline__ void sum_over_lanes(float* sums, int lane) {
  exchange_halves<16, kAll>(sums, lane);
  exchange_halves<8, kHalf>(sums, lane);
  exchange_halves<4, kQuarter>(sums, lane);
  exchange_halves<2, kEighth>(sums, lane);
  exchange_halves<1, kSixteenth>(sums, lane);
}

__device__ __forceinline__ int2 owned_sums(int lane) {
  int first = 0, end = kAll, size = kAll;
#pragma unroll
  for (int offset = 16; offset; offset /= 2) {
    size = halved(size);
    if (lane & offset) {
      first += size;
    } else {
      end = min(end, first + size);
    }
  }
  return make_int2(first, end);
}

// Fill `partial`: the gradients' sums of every entry over the pixels of its tile.
extern "C" __global__ void __launch_bounds__(32) draw_backward(
    const unsigned* __restrict__ tile_begins, unsigned capacity, const unsigned long long* __restrict__ keys,
    const uint4* __restrict__ spans, const float2* __restrict__ means2d, const float4* __restrict__ packed,
    const float* __restrict__ backgrounds, int background_stride, int count, int width, int height, int columns,
    int rows, const float* __restrict__ transmittances, const int* __restrict__ last_entries,
    const float* __restrict__ g_rgb, const float* __restrict__ g_alpha, const float* __restrict__ g_depth,  // null: 0
    float* __restrict__ partial) {  // [capacity, kSums] out
  __shared__ Entries entries;
  __shared__ unsigned slots[32];
  const Tile tile = this_tile(tile_begins, capacity, columns, rows);
  const int length = tile.end > tile.begin ? tile.end - tile.begin : 0;
  if (length == 0) return;
  const int lane = threadIdx.x, x = kTileWidth * tile.column + lane % 8, y = kTileHeight * tile.row + lane / 8;
  const size_t image_start = static_cast<size_t>(tile.image) * count;
  const unsigned long long* list = keys + tile.begin;
  const float px = x + 0.5f;
  const float* background = backgrounds + static_cast<size_t>(tile.image) * background_stride;
  float transmittance[PIXELS_A_LANE], behind[PIXELS_A_LANE], g_red[PIXELS_A_LANE], g_green[PIXELS_A_LANE];
  float g_blue[PIXELS_A_LANE], g_z[PIXELS_A_LANE], g_coverage[PIXELS_A_LANE];
  int last[PIXELS_A_LANE], used = 0;  // used: entries of which any pixel has drawn the last
#pragma unroll
  for (int p = 0; p < PIXELS_A_LANE; ++p) {
    transmittance[p] = 1, behind[p] = 0, last[p] = -1;
    g_red[p] = 0, g_green[p] = 0, g_blue[p] = 0, g_z[p] = 0, g_coverage[p] = 0;
    if (x >= width || y + 4 * p >= height) continue;
    const size_t at = (static_cast<size_t>(tile.image) * height + y + 4 * p) * width + x;
    transmittance[p] = transmittances[at], last[p] = last_entries[at];
    if (g_rgb) g_red[p] = g_rgb[3 * at], g_green[p] = g_rgb[3 * at + 1], g_blue[p] = g_rgb[3 * at + 2];
    if (g_depth) g_z[p] = g_depth[at];
    // rgb = ... + (1 - alpha) background: what a unit of coverage is worth besides its colour
    g_coverage[p] = (g_alpha ? g_alpha[at] : 0.0f) -
                    (g_red[p] * background[0] + g_green[p] * background[1] + g_blue[p] * background[2]);
    used = max(used, last[p] + 1);
  }
#pragma unroll
  for (int offset = 16; offset; offset /= 2) used = max(used, __shfl_xor_sync(kAllLanes, used, offset));

  for (int k = used + lane; k < length; k += 32) {  // never drawn
    const unsigned slot = span_slot(spans[image_start + static_cast<unsigned>(list[k])], tile.column, tile.row);
    if (slot >= capacity) continue;
    for (int i = 0; i < kSums; ++i) partial[static_cast<size_t>(slot) * kSums + i] = 0;
  }
  if (used == 0) return;

  const int2 owned = owned_sums(lane);
  const int top = (used - 1) / 32 * 32;
  Record record = {};
  uint4 span = make_uint4(0, 0, 0, 0);
  unsigned next_member = 0;
  if (top + lane < used) {
    const unsigned member = static_cast<unsigned>(list[top + lane]);
    record = load_record(means2d, packed, image_start + member), span = spans[image_start + member];
  }
  if (top > 0) next_member = static_cast<unsigned>(list[top - 32 + lane]);
  for (int base = top; base >= 0; base -= 32) {
    __syncwarp();
    store_record(entries, record, lane, base + lane < used);
    const unsigned slot = span_slot(span, tile.column, tile.row);
    slots[lane] = base + lane < used && slot < capacity ? slot : ~0u;
    __syncwarp();
    if (base > 0) {
      record = load_record(means2d, packed, image_start + next_member);
      span = spans[image_start + next_member];
    }
    if (base > 32) next_member = static_cast<unsigned>(list[base - 64 + lane]);
    const int here = min(32, used - base);
    for (int j = (here - 1) / kGroup * kGroup; j >= 0; j -= kGroup) {
      float alphas[kGroup][PIXELS_A_LANE];  // 0 where the entry is not drawn
      bool any = false;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const float4 shape = entries.shape[j + i], shade = entries.shade[j + i];
        const float dx = px - shape.x;
#pragma unroll
        for (int p = 0; p < PIXELS_A_LANE; ++p) {
          const float dy = (y + 4 * p + 0.5f) - shape.y;
          const float unclamped = unclamped_alpha(shape, shade, __fmaf_rn(shape.w, dy, dx), dy);
          const bool drawn = unclamped >= ALPHA_MIN && last[p] >= base + j + i;
          alphas[i][p] = drawn ? fminf(unclamped, ALPHA_MAX) : 0.0f;
          any = any || drawn;
        }
      }
      float sums[kAll];
#pragma unroll
      for (int i = 0; i < kAll; ++i) sums[i] = 0;
      if (__any_sync(kAllLanes, any)) {
#pragma unroll
        for (int i = kGroup - 1; i >= 0; --i) {
          const float4 shape = entries.shape[j + i], shade = entries.shade[j + i];
          const float2 rest = entries.rest[j + i];
          const float dx = px - shape.x;
#pragma unroll
          for (int p = 0; p < PIXELS_A_LANE; ++p) {
            const float dy = (y + 4 * p + 0.5f) - shape.y, u = __fmaf_rn(shape.w, dy, dx);
            const float drawn = alphas[i][p], inverse = reciprocal(1 - drawn);
            const float before = transmittance[p] * inverse, weight = before * drawn;
            const float value =
                shade.w * g_red[p] + rest.x * g_green[p] + rest.y * g_blue[p] + shade.z * g_z[p] + g_coverage[p];
            // alpha times its gradient; none where it is clamped
            const float v = drawn < ALPHA_MAX ? drawn * (before * value - behind[p] * inverse) : 0.0f;
            transmittance[p] = before, behind[p] += weight * value;
            const float vu = v * u, vy = v * dy;
            const float more[kSums] = {vu, vy, vu * u, vu * dy, vy * dy, v, weight * g_z[p], weight * g_red[p],
                                       weight * g_green[p], weight * g_blue[p]};
#pragma unroll
            for (int k = 0; k < kSums; ++k) sums[kSums * i + k] = p == 0 ? more[k] : sums[kSums * i + k] + more[k];
          }
        }
        sum_over_lanes(sums, lane);
      }
#pragma unroll
      for (int i = 0; i < kFinal; ++i) {
        const int which = owned.x + i;
        if (which >= owned.y) continue;
        const unsigned slot = slots[j + which / kSums];
        if (slot != ~0u) partial[static_cast<size_t>(slot) * kSums + which % kSums] = sums[i];
      }
    }
  }
}

// kSums / 2 threads a Gaussian in one image, each with two of its sums: over tiles, then to gradients.
extern "C" __global__ void __launch_bounds__(256) sum_gradients(
    const float2* __restrict__ partial,  // [capacity, kSums / 2]
    const uint4* __restrict__ spans, const float4* __restrict__ packed, int total, unsigned capacity,
    float2* __restrict__ g_means2d,      // [total] out
    float2* __restrict__ g_packed) {     // [total, 4] out
  const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t at = thread / (kSums / 2);
  const int pair = thread % (kSums / 2);
  if (at >= static_cast<size_t>(total)) return;
  const uint4 span = spans[at];
  const unsigned size = span_size(span), end = min(span.x + size, capacity);
  float2 sum = make_float2(0, 0);
#pragma unroll 4
  for (unsigned slot = span.x; slot < end; ++slot) {
    const float2 more = partial[static_cast<size_t>(slot) * (kSums / 2) + pair];
    sum.x += more.x, sum.y += more.y;
  }
  if (size > 0) {
    const float4 shape = packed[2 * at];
    const float a = shape.x, b = shape.y;
    // Of v u, v dy; v u u, v u dy; v dy dy, v; the rest are gradients already.
    if (pair == 0) sum = make_float2(a * sum.x, a * b * sum.x + shape.z * sum.y);
    if (pair == 1) sum = make_float2(-0.5f * sum.x, -a * sum.y);
    if (pair == 2) sum = make_float2(-0.5f * sum.x, sum.y / shape.w);
  }
  if (pair == 0) {
    g_means2d[at] = sum;
  } else {
    g_packed[4 * at + pair - 1] = sum;
  }
}
