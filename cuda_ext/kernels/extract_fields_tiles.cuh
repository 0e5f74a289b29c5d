#pragma once
// What the kernels of extract_fields.cu share: sizes, the record of a Gaussian, sums over a block, and the test of an
// ellipsoid against a box of nodes.

constexpr int kThreads = BLOCK_THREADS;  // of every block
constexpr int kWarps = kThreads / 32;
constexpr int kTile = TILE_SIDE;         // nodes along a side of a tile, which one block evaluates
constexpr int kTileNodes = kTile * kTile * kTile;
constexpr int kCell = 2 * kTile;         // nodes along a side of a cell: 2^3 tiles that share one list
constexpr int kSplit = GRID_SPLIT;       // regions along each side of the grid
constexpr int kRegions = kSplit * kSplit * kSplit;
constexpr int kSegment = SEGMENT_ENTRIES;  // entries of a list that are summed in one piece
constexpr unsigned kAll = 0xffffffffu;

// Counters of a call, 64 bits each, zeroed by extract_fields_prepare.
enum { kEntries, kSegments, kItems, kSlots, kPairs, kBlocksDone, kNextItem, kCounters };

using Counter = unsigned long long;

// A Gaussian in node units: log2 of its value at d = x - mean is
// log2_peak - (l0 dx)^2 - (l1 dx + l2 dy)^2 - (l3 dx + l4 dy + l5 dz)^2.
struct __align__(16) Record {
  float l0, l1, l2, l3;
  float l4, l5, log2_peak;
  float ratio;            // 2^(-2 l5^2), by which the step from node to node along z changes; negative: too narrow
  float rest[3], limit;   // mean less its nearest node; exponent at which the Gaussian counts as ending, for culling
  int nearest[3], unused;
};

// Rank of this thread among those of the block that keep something, in thread order, and how many do. One barrier; two
// calls in a row must be given different rows of warp_counts.
__device__ __forceinline__ int block_rank(bool keep, int* warp_counts, int& total) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const unsigned ballot = __ballot_sync(kAll, keep);
  if (lane == 0) warp_counts[warp] = __popc(ballot);
  __syncthreads();
  int rank = __popc(ballot & ((1u << lane) - 1u));
  total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int count = warp_counts[w];
    rank += w < warp ? count : 0;
    total += count;
  }
  return rank;
}

// Sum of `value` over the threads before this one, and over all. One barrier; as for block_rank.
__device__ __forceinline__ int block_scan(int value, int* warp_sums, int& total) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int inclusive = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAll, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  if (lane == 31) warp_sums[warp] = inclusive;
  __syncthreads();
  int before = inclusive - value;
  total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int sum = warp_sums[w];
    before += w < warp ? sum : 0;
    total += sum;
  }
  return before;
}

__device__ __forceinline__ float clamp(float value, float low, float high) { return fminf(fmaxf(value, low), high); }

// Which of a cell's 2^3 tiles a Gaussian may reach, one bit each (x slowest); a tile that it reaches is never missed.
// The exponent f is convex: f(x) >= f(d) + grad f(d) . (x - d) for any d, and the least of the right side over a box is
// a sum over axes. Tight where d is near the minimum: one round of coordinate descent from where the triangular factors
// put it finds 0.3 % too many tiles (sigma of 1.3 nodes) or none (5 nodes); a test of bounding boxes 50 % or 110 %.
__device__ __forceinline__ unsigned tiles_reached(const Record& g, int cell_x, int cell_y, int cell_z) {
  const float p00 = g.l0 * g.l0 + g.l1 * g.l1 + g.l3 * g.l3, p01 = g.l1 * g.l2 + g.l3 * g.l4, p02 = g.l3 * g.l5;
  const float p11 = g.l2 * g.l2 + g.l4 * g.l4, p12 = g.l4 * g.l5;
  const float inverse00 = -1.0f / p00, inverse11 = -1.0f / p11, inverse2 = -1.0f / g.l5, inverse1 = -1.0f / g.l2;
  const float x_y = p01 * inverse00, x_z = p02 * inverse00, y_x = p01 * inverse11, y_z = p12 * inverse11;
  const float z_x = g.l3 * inverse2, z_y = g.l4 * inverse2, first_y_x = g.l1 * inverse1;
  const float origin_x = (float)(cell_x * kCell - g.nearest[0]) - g.rest[0];
  const float origin_y = (float)(cell_y * kCell - g.nearest[1]) - g.rest[1];
  const float origin_z = (float)(cell_z * kCell - g.nearest[2]) - g.rest[2];
  unsigned reached = 0;
#pragma unroll
  for (int tile = 0; tile < 8; ++tile) {
    const float low_x = origin_x + (tile & 4 ? kTile : 0), high_x = low_x + (kTile - 1);
    const float low_y = origin_y + (tile & 2 ? kTile : 0), high_y = low_y + (kTile - 1);
    const float low_z = origin_z + (tile & 1 ? kTile : 0), high_z = low_z + (kTile - 1);
    float dx = clamp(0.0f, low_x, high_x);
    float dy = clamp(first_y_x * dx, low_y, high_y);
    float dz = clamp(z_x * dx + z_y * dy, low_z, high_z);
    dx = clamp(x_y * dy + x_z * dz, low_x, high_x);
    dy = clamp(y_x * dx + y_z * dz, low_y, high_y);
    dz = clamp(z_x * dx + z_y * dy, low_z, high_z);
    const float u = g.l0 * dx, v = g.l1 * dx + g.l2 * dy, w = g.l3 * dx + g.l4 * dy + g.l5 * dz;
    const float gx = 2.0f * (g.l0 * u + g.l1 * v + g.l3 * w), gy = 2.0f * (g.l2 * v + g.l4 * w), gz = 2.0f * g.l5 * w;
    const float least = u * u + v * v + w * w - fmaxf(gx * (dx - low_x), gx * (dx - high_x)) -
                        fmaxf(gy * (dy - low_y), gy * (dy - high_y)) - fmaxf(gz * (dz - low_z), gz * (dz - high_z));
    // So written that what is not a number counts as reached.
    reached |= least > g.limit ? 0u : 1u << tile;
  }
  return reached;
}
