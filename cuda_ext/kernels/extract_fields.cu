// The density field in tiles of 8^3 nodes, in three launches and without the host. extract_fields_...
//   prepare   one thread a Gaussian: its record and box, and for each of 8^3 regions of the grid one bit, whether the
//             box meets it; further blocks zero the field
//   bin       one block a cell of 16^3 nodes: walks its region's bits, tests boxes, then ellipsoids against the eight
//             tiles, and writes the list of those that reach any, in the Gaussians' order
//   evaluate  blocks take one tile that has Gaussians after the other; a thread holds two columns of 8 nodes
// Lists are in the Gaussians' order and summed in pieces of fixed borders, so the result is the same bits in every run;
// places of lists in memory and the order of tiles are not, and do not matter. Tiles without Gaussians are never
// visited. A list too long for one block is summed in segments by several, the last of which adds them up in order.
// Reference: mesh_extract/fields_loops.py. Host: mesh_extract/fields_cuda.py. What binds it: docs/performance.md.

#include "extract_fields_tiles.cuh"
#include "gaussian_shape.cuh"
#include "extract_fields_columns.cuh"

// Bits beside the 9 bits of each coordinate in a packed triple: what is left of them tells if a difference is negative.
constexpr unsigned kGuards = 1u << 9 | 1u << 19 | 1u << 29;
constexpr int kLargestPacked = 511;
constexpr int kLengthBits = 12;  // of an item: kSegment fits

__device__ __forceinline__ int region_size(int cells) { return (cells + kSplit - 1) / kSplit; }

__device__ void zero(float* values, long long count, long long block, long long blocks) {
  const long long head = min(count, (long long)((16 - (reinterpret_cast<unsigned long long>(values) & 15)) & 15) / 4);
  float4* body = reinterpret_cast<float4*>(values + head);
  const long long quads = (count - head) / 4;
  for (long long i = block * kThreads + threadIdx.x; i < quads; i += blocks * kThreads)
    body[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (block == 0) {
    if (threadIdx.x < head) values[threadIdx.x] = 0.0f;
    const long long tail = head + 4 * quads + threadIdx.x;
    if (tail < count) values[tail] = 0.0f;
  }
}

__device__ __forceinline__ bool finite(float value) { return fabsf(value) <= 3.4028235e38f; }

// Cells [first, last] that the interval middle +- half meets along one axis; false if none.
__device__ bool cells_met(double middle, double half, int first_cell, int cells, int& first, int& last) {
  const double low = fmax(ceil(middle - half), (double)first_cell * kCell);
  const double high = fmin(floor(middle + half), (double)(first_cell + cells) * kCell - 1.0);
  if (!(low <= high)) return false;
  first = (int)low / kCell - first_cell;
  last = (int)high / kCell - first_cell;
  return true;
}

extern "C" __global__ void __launch_bounds__(kThreads) extract_fields_prepare(
    const float* __restrict__ means,       // [count, 3] world units
    const float* __restrict__ quats,       // [count, 4] of any length
    const float* __restrict__ log_scales,  // [count, 3]
    const float* __restrict__ logits,      // [count] of the opacities
    int count, double lower_x, double lower_y, double lower_z, double voxel_size,
    int first_cell, int cells_x, int cells_y, int cells_z, int box_shift,
    Record* __restrict__ records,        // [count] out
    uint2* __restrict__ boxes,           // [count] out: first and last cell, packed
    unsigned* __restrict__ bits,         // [kRegions, words] out: bit i % 32 of word i / 32 is Gaussian i's
    int words,                           // kWarps a block of Gaussians
    unsigned char* __restrict__ faults,  // [words] out: parameters that are not finite
    Counter* __restrict__ counters,      // [kCounters] out: zeros
    int gaussian_blocks,
    float* __restrict__ density, long long nodes) {  // [nodes] out: zeros
  if (blockIdx.x >= gaussian_blocks) {
    zero(density, nodes, blockIdx.x - gaussian_blocks, gridDim.x - gaussian_blocks);
    return;
  }
  if (blockIdx.x == 0 && threadIdx.x < kCounters) counters[threadIdx.x] = 0;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const GridPlace grid = {{lower_x, lower_y, lower_z}, voxel_size};
  bool bad_mean = false, bad_quat = false, bad_scale = false, bad_logit = false;
  // One word a warp and region, gathered in shared memory so that a block writes whole sectors.
  __shared__ uint4 rows[kRegions * kWarps / 4];
  for (int part = threadIdx.x; part < kRegions * kWarps / 4; part += kThreads) rows[part] = uint4{0, 0, 0, 0};
  __syncthreads();
  if (i < count) {
    const float* mean_in = means + 3ll * i;
    const float* quat_in = quats + 4ll * i;
    const float* scale_in = log_scales + 3ll * i;
    bad_mean = !(finite(mean_in[0]) && finite(mean_in[1]) && finite(mean_in[2]));
    bad_quat = !(finite(quat_in[0]) && finite(quat_in[1]) && finite(quat_in[2]) && finite(quat_in[3]));
    bad_scale = !(finite(scale_in[0]) && finite(scale_in[1]) && finite(scale_in[2]));
    bad_logit = logits[i] != logits[i];

    const GaussianShape shape = gaussian_shape(mean_in, quat_in, scale_in, logits[i], grid);
    int first[3] = {kLargestPacked, kLargestPacked, kLargestPacked}, last[3] = {0, 0, 0};
    const bool meets = shape.reach >= 0.0 && !(bad_mean || bad_quat || bad_scale || bad_logit) &&
                       cells_met(shape.mean[0], shape.half[0], first_cell, cells_x, first[0], last[0]) &&
                       cells_met(shape.mean[1], shape.half[1], 0, cells_y, first[1], last[1]) &&
                       cells_met(shape.mean[2], shape.half[2], 0, cells_z, first[2], last[2]);
    if (meets) {
      const int size_x = region_size(cells_x), size_y = region_size(cells_y), size_z = region_size(cells_z);
      for (int x = first[0] / size_x; x <= last[0] / size_x; ++x)
        for (int y = first[1] / size_y; y <= last[1] / size_y; ++y)
          for (int z = first[2] / size_z; z <= last[2] / size_z; ++z)
            atomicOr(reinterpret_cast<unsigned*>(rows) + ((x * kSplit + y) * kSplit + z) * kWarps + warp, 1u << lane);
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) first[axis] >>= box_shift, last[axis] >>= box_shift;

      double l[6];
      precision_factors(shape, l);
      const double steepness = l[5] * l[5] * kExponentUnit * kExponentUnit;
      const double longest = fmax(shape.scale[0], fmax(shape.scale[1], shape.scale[2]));
      const double shortest = fmin(shape.scale[0], fmin(shape.scale[1], shape.scale[2]));
      Record g;
      g.l0 = (float)(l[0] * kExponentUnit), g.l1 = (float)(l[1] * kExponentUnit), g.l2 = (float)(l[2] * kExponentUnit);
      g.l3 = (float)(l[3] * kExponentUnit), g.l4 = (float)(l[4] * kExponentUnit), g.l5 = (float)(l[5] * kExponentUnit);
      g.log2_peak = (float)(shape.log_peak * kLog2E);
      g.ratio = steepness > kNarrow ? -1.0f : (float)exp2(-2.0 * steepness);
      g.limit = culling_limit(shape.reach, longest, shortest);
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) {
        const double nearest = rint(fmin(fmax(shape.mean[axis], -1e9), 1e9));
        g.nearest[axis] = (int)nearest;
        g.rest[axis] = (float)(shape.mean[axis] - nearest);
      }
      g.unused = 0;
      records[i] = g;
    }
    boxes[i] = uint2{(unsigned)(first[0] | first[1] << 10 | first[2] << 20),
                     (unsigned)(last[0] | last[1] << 10 | last[2] << 20) | kGuards};
  }
  const int fault = (__any_sync(kAll, bad_mean) ? 1 : 0) | (__any_sync(kAll, bad_quat) ? 2 : 0) |
                    (__any_sync(kAll, bad_scale) ? 4 : 0) | (__any_sync(kAll, bad_logit) ? 8 : 0);
  if (lane == 0) faults[blockIdx.x * kWarps + warp] = (unsigned char)fault;

  __syncthreads();
  for (int part = threadIdx.x; part < kRegions * kWarps / 4; part += kThreads)
    reinterpret_cast<uint4*>(bits + (part / 2) * (long long)words + blockIdx.x * kWarps)[part % 2] = rows[part];
}

// The Gaussians among 32, given by bits, whose box holds a cell.
__device__ __forceinline__ unsigned keep_boxes(unsigned word, const uint2* __restrict__ boxes, unsigned cell) {
  unsigned kept = 0;
  while (word) {
    const int bit = __ffs(word) - 1;
    word &= word - 1;
    const uint2 box = boxes[bit];
    if (((box.y - cell) & ((cell | kGuards) - box.x) & kGuards) == kGuards) kept |= 1u << bit;
  }
  return kept;
}

extern "C" __global__ void __launch_bounds__(kThreads) extract_fields_bin(
    const Record* __restrict__ records, const uint2* __restrict__ boxes, const unsigned* __restrict__ bits, int words,
    const unsigned char* __restrict__ faults,
    int first_cell, int cells_x, int cells_y, int cells_z, int box_shift,
    int first_x, int size_x, int size_y, int size_z,       // the nodes that are asked for
    unsigned* __restrict__ list, long long list_capacity,  // out: Gaussian << 8 | its tiles
    int4* __restrict__ segments,                           // out: place in list, length, next segment of the cell
    int4* __restrict__ items,                              // out: tile, place in list, length | part << 12, slot or -1
    int* __restrict__ arrived, int* __restrict__ parts, long long slot_capacity,  // [slot_capacity] out
    Counter* __restrict__ counters,
    long long* __restrict__ status) {  // [4] out, the host's memory: entries, slots, faults, pairs of Gaussian and tile
  constexpr int kWords = 4 * kThreads;  // taken at a time: a quad a thread
  constexpr int kHits = 2048;
  __shared__ unsigned short hits[kHits];       // Gaussians whose box holds the cell, counted from the first of kWords
  __shared__ unsigned staged[kSegment];        // entries of the list that are not written yet
  __shared__ int warp_counts[2][kWarps];
  __shared__ int shared_place, shared_first, shared_seen;
  __shared__ bool is_last;
  const int cell_z = blockIdx.x % cells_z, row = blockIdx.x / cells_z;
  const int cell_y = row % cells_y, cell_x = row / cells_y;
  const int region = (cell_x / region_size(cells_x) * kSplit + cell_y / region_size(cells_y)) * kSplit +
                     cell_z / region_size(cells_z);
  const unsigned packed = cell_x >> box_shift | cell_y >> box_shift << 10 | cell_z >> box_shift << 20;
  const uint4* region_bits = reinterpret_cast<const uint4*>(bits + region * (long long)words);
  if (threadIdx.x == 0) shared_first = -1, shared_seen = 0;

  int turn = 0, staged_count = 0, segment_count = 0, previous = -1;
  unsigned seen = 0;
  int pairs = 0;  // of a Gaussian and a tile, this thread's
  bool fits = true;  // thread 0's, as previous is

  // Write the staged entries as one segment of the cell's list.
  auto flush = [&]() {
    __syncthreads();
    if (threadIdx.x == 0) {
      const long long place = (long long)atomicAdd(&counters[kEntries], (Counter)staged_count);
      fits = fits && place + staged_count <= list_capacity;
      if (fits) {
        const int segment = (int)atomicAdd(&counters[kSegments], (Counter)1);
        segments[segment] = make_int4((int)place, staged_count, -1, 0);
        if (previous < 0) shared_first = segment;
        else segments[previous].z = segment;
        previous = segment;
      }
      shared_place = fits ? (int)place : -1;
    }
    __syncthreads();
    const int place = shared_place;
    if (place >= 0)
      for (int i = threadIdx.x; i < staged_count; i += kThreads) list[place + (long long)i] = staged[i];
    __syncthreads();
    staged_count = 0;
    ++segment_count;
  };

  for (int base = 0; base < words; base += kWords) {
    const int mine = base + 4 * threadIdx.x;  // words is a multiple of 4
    uint4 word = uint4{0, 0, 0, 0};
    if (mine < words) word = region_bits[mine / 4];
    const uint2* near = boxes + 32ll * mine;
    unsigned kept[4] = {keep_boxes(word.x, near, packed), keep_boxes(word.y, near + 32, packed),
                        keep_boxes(word.z, near + 64, packed), keep_boxes(word.w, near + 96, packed)};
    const int own = __popc(kept[0]) + __popc(kept[1]) + __popc(kept[2]) + __popc(kept[3]);
    int hit_count;
    const int start = block_scan(own, warp_counts[turn], hit_count);
    turn ^= 1;
    for (int window = 0; window < hit_count; window += kHits) {  // one round, unless the scene is very dense
      if (start < window + kHits && start + own > window) {
        int rank = start - window;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          for (unsigned rest = kept[k]; rest; rest &= rest - 1, ++rank)
            if (rank >= 0 && rank < kHits)
              hits[rank] = (unsigned short)((4 * threadIdx.x + k) * 32 + __ffs(rest) - 1);
        }
      }
      __syncthreads();
      const int in_window = min(kHits, hit_count - window);
      for (int first = 0; first < in_window; first += kThreads) {
        unsigned entry = 0;
        if (first + threadIdx.x < in_window) {
          const unsigned gaussian = 32u * base + hits[first + threadIdx.x];
          const unsigned reached = tiles_reached(records[gaussian], first_cell + cell_x, cell_y, cell_z);
          if (reached) entry = gaussian << 8 | reached;
          seen |= reached;
          pairs += __popc(reached);
        }
        int kept_count;
        const int rank = block_rank(entry != 0, warp_counts[turn], kept_count);
        turn ^= 1;
        if (entry) staged[staged_count + rank] = entry;
        staged_count += kept_count;
        if (staged_count > kSegment - kThreads) flush();
      }
      __syncthreads();
    }
  }
  if (staged_count) flush();
  if (segment_count) {
    int cell_pairs;
    block_scan(pairs, warp_counts[turn], cell_pairs);
    if (threadIdx.x == 0) atomicAdd(&counters[kPairs], (Counter)cell_pairs);
  }
  if (seen) atomicOr(&shared_seen, (int)seen);
  __syncthreads();

  // A thread for each of the cell's tiles puts it on the list of what is to do, a segment an item.
  if (threadIdx.x < 8 && shared_seen >> threadIdx.x & 1) {
    const int tile_x = 2 * cell_x + (threadIdx.x >> 2), tile_y = 2 * cell_y + (threadIdx.x >> 1 & 1);
    const int tile_z = 2 * cell_z + (threadIdx.x & 1);
    const int from_x = first_cell * kCell + tile_x * kTile;
    if (from_x < first_x + size_x && from_x + kTile > first_x && tile_y * kTile < size_y && tile_z * kTile < size_z) {
      const int tile = (tile_x * 2 * cells_y + tile_y) * 2 * cells_z + tile_z;
      long long slot = -1;
      if (segment_count > 1) {
        slot = (long long)atomicAdd(&counters[kSlots], (Counter)segment_count);
        if (slot + segment_count <= slot_capacity) arrived[slot] = 0, parts[slot] = segment_count;
      }
      if (slot + segment_count <= slot_capacity || segment_count == 1) {
        int next = shared_first;
        for (int part = 0; part < segment_count && next >= 0; ++part) {
          const int4 segment = segments[next];
          next = segment.z;
          items[atomicAdd(&counters[kItems], (Counter)1)] =
              make_int4(tile, segment.x, segment.y | part << kLengthBits, (int)slot);
        }
      }
    }
  }

  // The last block tells the host.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&counters[kBlocksDone], (Counter)1) == gridDim.x - 1, shared_seen = 0;
  __syncthreads();
  if (is_last && status != nullptr) {
    int fault = 0;
    for (int i = threadIdx.x; i < words; i += kThreads) fault |= faults[i];
    if (fault) atomicOr(&shared_seen, fault);
    __syncthreads();
    if (threadIdx.x == 0) {
      status[0] = (long long)atomicAdd(&counters[kEntries], (Counter)0);
      status[1] = (long long)atomicAdd(&counters[kSlots], (Counter)0);
      status[2] = shared_seen;
      status[3] = (long long)atomicAdd(&counters[kPairs], (Counter)0);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 4) extract_fields_evaluate(
    const Record* __restrict__ records, const unsigned* __restrict__ list, long long list_capacity,
    const int4* __restrict__ items, int* __restrict__ arrived, const int* __restrict__ parts, long long slot_capacity,
    float* __restrict__ partials,  // [slot_capacity, 8, 8, 8] sums of the segments of heavy tiles
    Counter* __restrict__ counters, int first_cell, int cells_y, int cells_z,
    int first_x, int size_x, int size_y, int size_z,
    float* __restrict__ density) {  // [size_x, size_y, size_z] out, zeros before
  // First what the Gaussians at hand are in the tile's own coordinates, then each warp's sums.
  __shared__ float4 store[kWarps * kTileNodes / 4];
  __shared__ int warp_counts[2][kWarps];
  __shared__ long long shared_item;
  __shared__ bool is_last;
  static_assert(3 * kThreads <= kWarps * kTileNodes / 4, "three float4 a Gaussian");
  if (counters[kEntries] > list_capacity || counters[kSlots] > slot_capacity) return;  // the host will ask again
  const long long item_count = counters[kItems];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int column_x = lane >> 2, column_y = lane & 3;  // and column_y + 4
  const float x = column_x, y = column_y;
  int turn = 0;
  long long fetched = blockIdx.x;  // thread 0's: the item after this one, asked for in time
  while (true) {
    if (threadIdx.x == 0) shared_item = fetched;
    __syncthreads();
    if (shared_item >= item_count) return;
    const int4 item = items[item_count - 1 - shared_item];  // long lists came last: begin with them
    if (threadIdx.x == 0) fetched = gridDim.x + (long long)atomicAdd(&counters[kNextItem], (Counter)1);
    const int length = item.z & ((1 << kLengthBits) - 1), part = item.z >> kLengthBits, slot = item.w;
    const int tile_z = item.x % (2 * cells_z), row = item.x / (2 * cells_z);
    const int tile_y = row % (2 * cells_y), tile_x = row / (2 * cells_y);
    const int from_x = first_cell * kCell + tile_x * kTile, from_y = tile_y * kTile, from_z = tile_z * kTile;
    const int bit = (tile_x & 1) << 2 | (tile_y & 1) << 1 | (tile_z & 1);
    const unsigned* entries = list + item.y;
    float first[kTile] = {}, second[kTile] = {};  // columns (x, y) and (x, y + 4)
    unsigned next = threadIdx.x < length ? entries[threadIdx.x] : 0;
    for (int base = 0; base < length; base += kThreads) {
      const unsigned entry = next;
      const bool keep = entry >> bit & 1;
      int count;
      const int rank = block_rank(keep, warp_counts[turn], count);
      turn ^= 1;
      if (keep) {
        const Record g = records[entry >> 8];
        const float dx = (float)(from_x - g.nearest[0]) - g.rest[0], dy = (float)(from_y - g.nearest[1]) - g.rest[1];
        const float dz = (float)(from_z + 4 - g.nearest[2]) - g.rest[2];
        store[3 * rank] = make_float4(g.l0, g.l0 * dx, g.l1, g.l2);
        store[3 * rank + 1] =
            make_float4(fmaf(g.l2, dy, g.l1 * dx), g.l3, g.l4, fmaf(g.l5, dz, fmaf(g.l4, dy, g.l3 * dx)));
        store[3 * rank + 2] = make_float4(g.log2_peak, -2.0f * g.l5, -g.l5 * g.l5, g.ratio);
      }
      __syncthreads();
      next = base + kThreads + threadIdx.x < length ? entries[base + kThreads + threadIdx.x] : 0;
      for (int j = warp; j < count; j += kWarps) {
        const float4 a = store[3 * j], b = store[3 * j + 1], c = store[3 * j + 2];
        const float t = fmaf(a.x, x, a.y), log2_plane = fmaf(-t, t, c.x);
        const float v0 = fmaf(a.w, y, fmaf(a.z, x, b.x)), u0 = fmaf(b.z, y, fmaf(b.y, x, b.w));
        const float v1 = fmaf(a.w, 4.0f, v0), u1 = fmaf(b.z, 4.0f, u0);
        const float log2_row0 = fmaf(-v0, v0, log2_plane), log2_row1 = fmaf(-v1, v1, log2_plane);
        if (c.w >= 0.0f) {
          add_wide(first, log2_row0, u0, c.y, c.z, c.w);
          add_wide(second, log2_row1, u1, c.y, c.z, c.w);
        } else {
          add_narrow(first, log2_row0, u0, c.y);
          add_narrow(second, log2_row1, u1, c.y);
        }
      }
    }

    // The warps' sums, each over its share of the list, in the warps' order.
    __syncthreads();
    float4* own = store + warp * (kTileNodes / 4) + (column_x * kTile + column_y) * (kTile / 4);
    own[0] = make_float4(first[0], first[1], first[2], first[3]);
    own[1] = make_float4(first[4], first[5], first[6], first[7]);
    own[8] = make_float4(second[0], second[1], second[2], second[3]);
    own[9] = make_float4(second[4], second[5], second[6], second[7]);
    __syncthreads();
    float2 sum = make_float2(0.0f, 0.0f);  // of nodes 2 threadIdx.x and the one after it
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 part = reinterpret_cast<const float2*>(store)[w * (kTileNodes / 2) + threadIdx.x];
      sum.x += part.x, sum.y += part.y;
    }
    if (slot >= 0) {  // one of several segments: the block that ends last adds them up
      float2* slots = reinterpret_cast<float2*>(partials) + (long long)slot * (kTileNodes / 2) + threadIdx.x;
      slots[part * (long long)(kTileNodes / 2)] = sum;
      __threadfence();
      __syncthreads();
      const int part_count = parts[slot];
      if (threadIdx.x == 0) is_last = atomicAdd(&arrived[slot], 1) == part_count - 1;
      __syncthreads();
      if (!is_last) continue;
      __threadfence();
      sum = make_float2(0.0f, 0.0f);
      for (int other = 0; other < part_count; ++other) {
        const float2 value = __ldcg(slots + other * (long long)(kTileNodes / 2));
        sum.x += value.x, sum.y += value.y;
      }
    }
    const int node_x = from_x - first_x + (threadIdx.x >> 5), node_y = from_y + (threadIdx.x >> 2 & 7);
    const int node_z = from_z + 2 * (threadIdx.x & 3);
    if (node_x >= 0 && node_x < size_x && node_y < size_y) {
      float* out = density + ((long long)node_x * size_y + node_y) * size_z;
      if (node_z < size_z) out[node_z] = sum.x;
      if (node_z + 1 < size_z) out[node_z + 1] = sum.y;
    }
  }
}
