// Lists of Gaussians a tile, front to back: entered in any order, then sorted by depth, ties by index.
//
// Macros: PIXELS_A_LANE.
#include "rasterize_common.cuh"

typedef unsigned long long Key;  // bits of the depth, which order positive floats | index of the Gaussian: never equal

constexpr int kSortThreads = 256;
constexpr int kChunk = 4096;        // keys that are sorted in shared memory at once, 32 KiB
constexpr int kEntriesAtOnce = 4;   // of a lane, so that their atomics are under way together

// Enter the entries of one Gaussian, number first, first + stride, ... of its `size`, into the lists of their tiles.
__device__ __forceinline__ void enter_box(
    Key key, int x0, int y0, unsigned w, unsigned size, unsigned first, unsigned stride, const unsigned* begins,
    unsigned* cursors, int columns, unsigned capacity, Key* keys) {
  for (unsigned i = first; i < size; i += stride) {
    const size_t tile = static_cast<size_t>(y0 + i / w) * columns + x0 + i % w;
    const unsigned place = begins[tile] + atomicAdd(&cursors[tile], 1u);
    if (place < capacity) keys[place] = key;
  }
}

// One thread a Gaussian in one image. Entries beyond the capacity are left out; the caller then starts again.
extern "C" __global__ void __launch_bounds__(256) fill_tiles(
    const uint4* __restrict__ spans, const float4* __restrict__ packed, int cameras, int count, int columns, int rows,
    const unsigned* __restrict__ tile_begins, unsigned* cursors, unsigned capacity, Key* __restrict__ keys) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  uint4 span = make_uint4(0, 0, 0, 0);
  size_t first_tile = 0;
  Key key = 0;
  if (index < cameras * count) {
    span = spans[index];
    first_tile = static_cast<size_t>(index / count) * rows * columns;
    const unsigned depth = __float_as_uint(packed[2 * static_cast<size_t>(index) + 1].x);
    key = static_cast<Key>(depth) << 32 | static_cast<unsigned>(index % count);
  }
  const bool big = span_is_big(span);
  if (!big) {
    const unsigned* begins = tile_begins + first_tile;
    unsigned* image_cursors = cursors + first_tile;
    for (unsigned long long left = span_mask(span); left;) {
      unsigned places[kEntriesAtOnce];
      int found = 0;
#pragma unroll
      for (int i = 0; i < kEntriesAtOnce; ++i) {
        if (!left) break;
        const int bit = __ffsll(static_cast<long long>(left)) - 1;
        left &= left - 1;
        const size_t tile =
            static_cast<size_t>(span_row(span) + bit / 8) * columns + span_column(span) + bit % 8;
        places[i] = begins[tile] + atomicAdd(&image_cursors[tile], 1u);
        found = i + 1;
      }
#pragma unroll
      for (int i = 0; i < kEntriesAtOnce; ++i)
        if (i < found && places[i] < capacity) keys[places[i]] = key;
    }
  }
  for (unsigned left = __ballot_sync(kAllLanes, big); left; left &= left - 1) {
    const int source = __ffs(left) - 1;
    const Key its_key = __shfl_sync(kAllLanes, key, source);
    const unsigned long long its_tile =
        __shfl_sync(kAllLanes, static_cast<unsigned long long>(first_tile), source);
    const unsigned w = __shfl_sync(kAllLanes, span.y, source), h = __shfl_sync(kAllLanes, span.z, source);
    const unsigned corner = __shfl_sync(kAllLanes, span.w, source);
    enter_box(its_key, corner & 0xffff, (corner >> 16) & 0x7fff, w, w * h, threadIdx.x % 32, 32, tile_begins + its_tile,
              cursors + its_tile, columns, capacity, keys);
  }
}

__device__ __forceinline__ void order(Key* keys, unsigned low, unsigned high) {
  const Key a = keys[low], b = keys[high];
  if (a > b) keys[low] = b, keys[high] = a;
}

// One step of a bitonic merge over pairs of keys `stride` apart, or mirrored within blocks of 2 * stride; every pair is
// put in ascending order, so that keys beyond `count`, thought infinite, never move and need not exist.
__device__ __forceinline__ void merge_step(Key* keys, unsigned pairs, unsigned stride, bool mirrored, unsigned count) {
  for (unsigned t = threadIdx.x; t < pairs; t += kSortThreads) {
    const unsigned offset = t & (stride - 1), block = 2 * (t - offset);
    const unsigned low = block + offset, high = mirrored ? block + 2 * stride - 1 - offset : low + stride;
    if (high < count) order(keys, low, high);
  }
}

// A warp's 32 consecutive pairs lie within 64 keys that no other warp touches as long as strides are at most 32.
__device__ __forceinline__ void wait_for_step(unsigned stride, unsigned next_stride) {
  if (stride > 32 || next_stride > 32) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

// Merge sorted runs of `run` keys to runs of `until` keys, in shared memory; run = 1 sorts.
__device__ __forceinline__ void sort_shared(Key* keys, unsigned run, unsigned until, unsigned count) {
  const unsigned pairs = until / 2;
  for (; run < until; run *= 2) {
    merge_step(keys, pairs, run, true, count);
    wait_for_step(run, run / 2);
    for (unsigned stride = run / 2; stride; stride /= 2) {
      merge_step(keys, pairs, stride, false, count);
      wait_for_step(stride, stride > 1 ? stride / 2 : 2 * run);
    }
  }
}

// One block a tile. Up to kChunk keys are sorted in shared memory; more are sorted in chunks there, and merged by steps
// through global memory where the stride is longer than a chunk.
extern "C" __global__ void __launch_bounds__(kSortThreads) sort_tiles(
    const unsigned* __restrict__ tile_begins, unsigned capacity, Key* keys) {
  __shared__ Key chunk[kChunk];
  const unsigned begin = min(tile_begins[blockIdx.x], capacity), end = min(tile_begins[blockIdx.x + 1], capacity);
  if (end <= begin + 1) return;
  Key* list = keys + begin;
  const unsigned length = end - begin;
  for (unsigned run = 1; run < length; run = max(2 * run, static_cast<unsigned>(kChunk))) {
    if (run >= kChunk) {  // merge runs of `run` to 2 * run keys, down to strides within a chunk
      unsigned padded = 2 * run;
      while (padded < length) padded += 2 * run;
      merge_step(list, padded / 2, run, true, length);
      __syncthreads();
      for (unsigned stride = run / 2; stride >= kChunk; stride /= 2) {
        merge_step(list, padded / 2, stride, false, length);
        __syncthreads();
      }
    }
    for (unsigned from = 0; from < length; from += kChunk) {
      const unsigned count = min(length - from, static_cast<unsigned>(kChunk));
      unsigned padded = 2;
      while (padded < count) padded *= 2;
      for (unsigned i = threadIdx.x; i < count; i += kSortThreads) chunk[i] = list[from + i];
      __syncthreads();
      if (run == 1) {
        sort_shared(chunk, 1, padded, count);
      } else {
        for (unsigned stride = padded / 2; stride; stride /= 2) {
          merge_step(chunk, padded / 2, stride, false, count);
          wait_for_step(stride, stride / 2);
        }
      }
      __syncthreads();
      for (unsigned i = threadIdx.x; i < count; i += kSortThreads) list[from + i] = chunk[i];
      __syncthreads();
    }
  }
}
