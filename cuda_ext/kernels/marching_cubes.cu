// Marching cubes over a field on a grid of nodes: one vertex for each grid edge that the surface crosses, and the faces
// of mesh_extract/cell_cases.py. Reference: marching_cubes in mesh_extract/isosurface.py. Host: isosurface_cuda.py.
//
// The field is read once, coalesced, into one bit a node (at least iso or not); all that decides which vertices and
// faces there are reads bits, 32 nodes along z in a word. Values are read again only at the crossings.
//
//   classify_nodes   field -> words of bits
//   count_cells      one thread a word: vertices and faces that it owns, and where they come in its block of words
//   scan_blocks      where each block's vertices, faces and words with a surface begin; the sums, for the host
//   list_active      the words with a surface, one after the other, with their places
//   write_mesh       one warp such a word, one lane a node: its vertices and faces
//
// A slab of the grid: node planes 1 to `planes` hold x = x_first and up; plane 0 is the last one of the slab before, or
// outside of the grid. Node (x, y, z) owns the edges to x - 1, y - 1 and z - 1 and the cell between those and itself,
// so that a slab needs nothing of the next one. Outside of the grid the field is 0, so cells go one plane farther than
// nodes: y to `size_y`, z to `size_z`, and planes to `cell_planes`, which is planes + 1 in the last slab, else planes.
// Words lie in [cell_planes + 1, size_y + 1, row_words], row_words = size_z / 32 + 1; those of plane 0 are not counted.
// Within a word the order is: vertices on edges along x, along z, along y, each by z; faces by z.
// Bound by memory: docs/performance.md.
constexpr int kThreads = 256;  // of a block, in all kernels but scan_blocks
constexpr int kWarps = kThreads / 32;
constexpr int kBlockWords = 256;  // words of a block of the scan, one a thread
constexpr int kWarpWords = 8;     // words that a warp classifies: loads in flight
constexpr int kScanThreads = 1024;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr float kLargest = 3.402823466e38f;  // of all finite numbers in single precision
// Three counts of a block in 64 bits: vertices, faces, words with a surface; at most 256 * 96, 256 * 160, 256.
constexpr int kFaceShift = 20, kActiveShift = 40;
constexpr unsigned long long kCountMask = (1ull << 20) - 1;

static_assert(kBlockWords == kThreads, "one thread a word");

// The words of four rows of nodes, index dx + 2 dy: row (x - dx, y - dy).
struct Rows {
  unsigned here[4];   // bit z: is node z inside
  unsigned below[4];  // bit z: is node z - 1 inside

  __device__ unsigned edges_x() const { return here[0] ^ here[1]; }
  __device__ unsigned edges_y() const { return here[0] ^ here[2]; }
  __device__ unsigned edges_z(int row = 0) const { return here[row] ^ below[row]; }

  // Bit z: do the corners of cell z differ.
  __device__ unsigned active() const {
    unsigned any = here[0] | here[1] | here[2] | here[3] | below[0] | below[1] | below[2] | below[3];
    unsigned all = here[0] & here[1] & here[2] & here[3] & below[0] & below[1] & below[2] & below[3];
    return any & ~all;
  }

  // Which corners of cell z are inside: bit x + 2 y + 4 z as in cell_cases.py.
  __device__ int cell_case(int z) const {
    int corners = 0;
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      corners |= static_cast<int>(here[row] >> z & 1u) << (7 - row);
      corners |= static_cast<int>(below[row] >> z & 1u) << (3 - row);
    }
    return corners;
  }
};

__device__ __forceinline__ unsigned word_below(unsigned word, unsigned previous) {
  return word << 1 | previous >> 31;
}

// How many bits of `mask` are set below `bit`.
__device__ __forceinline__ int rank_of(unsigned mask, unsigned bit) {
  return __popc(mask & (bit - 1u));
}

extern "C" __global__ void classify_nodes(
    const float* __restrict__ field,  // [planes, size_y, size_z]
    int planes, int size_y, int size_z, int row_words, float iso,
    unsigned words,                  // of all planes but plane 0
    unsigned* __restrict__ inside,   // [cell_planes + 1, size_y + 1, row_words] out, from plane 1
    long long* __restrict__ totals)  // [4] out: the last one becomes 1 if a value is not finite
{
  const int lane = threadIdx.x & 31;
  const unsigned first = (blockIdx.x * kWarps + (threadIdx.x >> 5)) * kWarpWords;
  if (first >= words) return;
  unsigned row = first / row_words;
  int w = static_cast<int>(first - row * row_words);
  int plane = static_cast<int>(row / (size_y + 1));
  int y = static_cast<int>(row - static_cast<unsigned>(plane) * (size_y + 1));
  float values[kWarpWords];
#pragma unroll
  for (int i = 0; i < kWarpWords; ++i) {
    int z = 32 * w + lane;
    bool exists = plane < planes && y < size_y && z < size_z;
    values[i] = exists ? field[(static_cast<long long>(plane) * size_y + y) * size_z + z] : 0.0f;
    if (++w == row_words) {
      w = 0;
      if (++y > size_y) {
        y = 0;
        ++plane;
      }
    }
  }
  unsigned mine = 0;
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kWarpWords; ++i) {
    unsigned word = __ballot_sync(kAllLanes, values[i] >= iso);
    if (lane == i) mine = word;
    finite = finite && fabsf(values[i]) <= kLargest;
  }
  if (!__all_sync(kAllLanes, finite) && lane == 0) totals[3] = 1;  // whoever writes it, it is the same
  const unsigned plane_words = static_cast<unsigned>(size_y + 1) * row_words;
  if (lane < kWarpWords && first + lane < words) inside[plane_words + first + lane] = mine;
}

extern "C" __global__ void count_cells(
    const unsigned* __restrict__ inside,           // [cell_planes + 1, size_y + 1, row_words]
    const unsigned long long* __restrict__ cases,  // [256] packed triangles
    int size_y, int row_words, unsigned words,
    unsigned* __restrict__ places,                     // as inside, out: first z edge's vertex, first face in block
    unsigned* __restrict__ active_words,               // [blocks, 8] out: bit i for the block's word i
    unsigned long long* __restrict__ block_counts)     // [blocks] out
{
  __shared__ unsigned char triangle_count[256];
  __shared__ unsigned long long warp_counts[kWarps];
  triangle_count[threadIdx.x] = static_cast<unsigned char>(cases[threadIdx.x] >> 60);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const unsigned plane_words = static_cast<unsigned>(size_y + 1) * row_words;
  const unsigned word = blockIdx.x * kBlockWords + threadIdx.x;
  Rows rows = {};
  if (word < words) {
    const unsigned row = word / row_words;
    const int w = static_cast<int>(word - row * row_words);
    const bool first_row = row % (size_y + 1) == 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k >= 2 && first_row) continue;  // y - 1 lies outside of the grid
      const unsigned* at = inside + (plane_words + word - (k & 1) * plane_words - (k >> 1) * row_words);
      rows.here[k] = at[0];
      rows.below[k] = word_below(at[0], w > 0 ? at[-1] : 0u);
    }
  }
  __syncthreads();  // triangle_count
  const unsigned active = rows.active();
  const unsigned edges_x = __popc(rows.edges_x());
  const unsigned vertices = edges_x + __popc(rows.edges_y()) + __popc(rows.edges_z());
  unsigned faces = 0;
  for (unsigned rest = active; rest != 0; rest &= rest - 1) faces += triangle_count[rows.cell_case(__ffs(rest) - 1)];

  const unsigned long long own = vertices | static_cast<unsigned long long>(faces) << kFaceShift |
                                 static_cast<unsigned long long>(active != 0) << kActiveShift;
  unsigned long long before = own;  // becomes the sum over this and the lower lanes
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    unsigned long long other = __shfl_up_sync(kAllLanes, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) warp_counts[warp] = before;
  const unsigned active_lanes = __ballot_sync(kAllLanes, active != 0);
  if (lane == 0) active_words[blockIdx.x * kWarps + warp] = active_lanes;
  __syncthreads();
  unsigned long long sum = 0;
  before -= own;
  for (int other = 0; other < kWarps; ++other) {
    if (other < warp) before += warp_counts[other];
    sum += warp_counts[other];
  }
  if (threadIdx.x == 0) block_counts[blockIdx.x] = sum;
  if (word < words) {
    const unsigned vertex = static_cast<unsigned>(before & kCountMask) + edges_x;
    const unsigned face = static_cast<unsigned>(before >> kFaceShift & kCountMask);
    places[plane_words + word] = active != 0 ? vertex | face << 16 : 0u;  // both fit 16 bits
  }
}

// One block: exclusive sums over the blocks of words.
extern "C" __global__ void __launch_bounds__(kScanThreads) scan_blocks(
    const unsigned long long* __restrict__ block_counts,  // [blocks]
    int blocks,
    int* __restrict__ block_first,   // [3, blocks] out: vertices, faces, words with a surface before each block
    long long* __restrict__ totals)  // [4] out: vertices, faces, words with a surface
{
  __shared__ long long warp_sums[3][32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int run = (blocks + kScanThreads - 1) / kScanThreads;
  const int first = min(static_cast<int>(threadIdx.x) * run, blocks), last = min(first + run, blocks);
  long long own[3] = {0, 0, 0};
  for (int i = first; i < last; ++i) {
    const unsigned long long counts = block_counts[i];
    for (int k = 0; k < 3; ++k) own[k] += static_cast<long long>(counts >> (k * kFaceShift) & kCountMask);
  }
  long long before[3];
  for (int k = 0; k < 3; ++k) {
    long long sum = own[k];
    for (int step = 1; step < 32; step *= 2) {
      long long other = __shfl_up_sync(kAllLanes, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) warp_sums[k][warp] = sum;
    before[k] = sum - own[k];
  }
  __syncthreads();
  for (int k = 0; k < 3; ++k) {
    long long sum = 0;
    for (int other = 0; other < 32; ++other) {
      if (other < warp) before[k] += warp_sums[k][other];
      sum += warp_sums[k][other];
    }
    if (threadIdx.x == 0) totals[k] = sum;
  }
  // Sums past 2^31 wrap here: the host sees them in totals and goes no farther.
  for (int i = first; i < last; ++i) {
    const unsigned long long counts = block_counts[i];
    for (int k = 0; k < 3; ++k) {
      block_first[static_cast<long long>(k) * blocks + i] = static_cast<int>(before[k]);
      before[k] += static_cast<long long>(counts >> (k * kFaceShift) & kCountMask);
    }
  }
}

extern "C" __global__ void list_active(
    const unsigned* __restrict__ active_words,  // [blocks, 8]
    const int* __restrict__ block_first,        // [3, blocks]
    int blocks, int size_y, int row_words,
    int vertex_offset,              // vertices of the slabs before
    unsigned* __restrict__ places,  // in: from count_cells; out: index of the vertex on the word's first edge along z
    uint2* __restrict__ active)     // [words with a surface] out: word and its first face in this slab
{
  const unsigned* masks = active_words + static_cast<long long>(blockIdx.x) * kWarps;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (!(masks[warp] >> lane & 1u)) return;
  int rank = rank_of(masks[warp], 1u << lane);
  for (int other = 0; other < warp; ++other) rank += __popc(masks[other]);
  const int first_vertex = block_first[blockIdx.x];
  const int first_face = block_first[blocks + blockIdx.x];
  const int first_word = block_first[2ll * blocks + blockIdx.x];
  const unsigned word = blockIdx.x * kBlockWords + threadIdx.x;
  unsigned* place = places + (static_cast<unsigned>(size_y + 1) * row_words + word);
  const unsigned local = *place;
  active[first_word + rank] = make_uint2(word, first_face + (local >> 16));
  *place = vertex_offset + first_vertex + (local & 0xffffu);
}

// The field around a slab.
struct Field {
  const float* values;    // [planes, size_y, size_z]
  const float* previous;  // [size_y, size_z] the plane before, or null
  int planes, size_y, size_z;

  __device__ double at(int plane, int y, int z) const {
    if (plane > planes || y < 0 || y >= size_y || z < 0 || z >= size_z) return 0.0;
    if (plane > 0) return values[(static_cast<long long>(plane - 1) * size_y + y) * size_z + z];
    return previous != nullptr ? previous[static_cast<long long>(y) * size_z + z] : 0.0;
  }
};

// Where a value between those at 0 and 1 is iso, at least node_distance from both.
__device__ __forceinline__ double crossing(double at_0, double at_1, double iso, double node_distance) {
  double fraction = (iso - at_0) / (at_1 - at_0);
  return fmin(fmax(fraction, node_distance), 1.0 - node_distance);
}

extern "C" __global__ void __launch_bounds__(kThreads) write_mesh(
    const float* __restrict__ field,               // [planes, size_y, size_z]
    const float* __restrict__ previous,            // [size_y, size_z] the plane before, or null
    const unsigned* __restrict__ inside,           // [cell_planes + 1, size_y + 1, row_words]
    const unsigned* __restrict__ places,           // as inside
    const unsigned long long* __restrict__ cases,  // [256]
    const uint2* __restrict__ active,              // [active_count]
    int active_count, int planes, int size_y, int size_z, int row_words, int x_first, int vertex_offset, double iso,
    double node_distance,
    float* __restrict__ vertices,  // [V, 3] out, node units
    int* __restrict__ faces)       // [F, 3] out
{
  __shared__ unsigned long long packed[256];
  __shared__ int edge_vertex[12][kThreads];  // by edge of the lane's cell: its vertex
  __shared__ int staged[kWarps][480];        // what a warp writes: up to 96 vertices, then 160 faces
  packed[threadIdx.x] = cases[threadIdx.x];
  __syncthreads();

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int item = blockIdx.x * kWarps + warp;
  if (item >= active_count) return;  // the whole warp
  const uint2 record = active[item];
  const unsigned word = record.x;
  const unsigned row = word / row_words;
  const int w = static_cast<int>(word - row * row_words);
  const int plane = static_cast<int>(row / (size_y + 1)) + 1;
  const int y = static_cast<int>(row % (size_y + 1));
  const int z = 32 * w + lane;

  // Lane dx + 2 dy + 4 dw holds the word of row (x - dx, y - dy) dw words before this one, and its place.
  unsigned loaded = 0, place = 0;
  {
    const int dx = lane & 1, dy = lane >> 1 & 1, dw = lane >> 2;
    if (dw <= 2 && y - dy >= 0 && w - dw >= 0) {
      const unsigned at = (static_cast<unsigned>(plane - dx) * (size_y + 1) + (y - dy)) * row_words + (w - dw);
      loaded = inside[at];
      place = places[at];
    }
  }
  Rows rows, last;  // this word, and the one before along z
  int first[4], last_first[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const unsigned before = __shfl_sync(kAllLanes, loaded, 4 + k);
    rows.here[k] = __shfl_sync(kAllLanes, loaded, k);
    rows.below[k] = word_below(rows.here[k], before);
    last.here[k] = before;
    last.below[k] = word_below(before, __shfl_sync(kAllLanes, loaded, 8 + k));
    first[k] = static_cast<int>(__shfl_sync(kAllLanes, place, k));
    last_first[k] = static_cast<int>(__shfl_sync(kAllLanes, place, 4 + k));
  }

  // Vertices. `first` is where those on edges along z begin; along x lie before, along y after them.
  const Field density{field, previous, planes, size_y, size_z};
  const unsigned edges_x = rows.edges_x(), edges_y = rows.edges_y(), edges_z = rows.edges_z();
  const int count_x = __popc(edges_x), count_z = __popc(edges_z);
  const unsigned bit = 1u << lane;
  const unsigned crossed = (edges_x & bit ? 1u : 0u) | (edges_y & bit ? 2u : 0u) | (edges_z & bit ? 4u : 0u);
  float* positions = reinterpret_cast<float*>(staged[warp]);
  if (crossed != 0) {
    const double own = density.at(plane, y, z);
    const double node_x = x_first + plane - 1, node_y = y, node_z = z;
    if (crossed & 1u) {
      float* position = positions + 3 * rank_of(edges_x, bit);
      const double along = crossing(density.at(plane - 1, y, z), own, iso, node_distance);
      position[0] = static_cast<float>(node_x - 1 + along);
      position[1] = static_cast<float>(node_y);
      position[2] = static_cast<float>(node_z);
    }
    if (crossed & 2u) {
      float* position = positions + 3 * (count_x + count_z + rank_of(edges_y, bit));
      position[0] = static_cast<float>(node_x);
      const double along = crossing(density.at(plane, y - 1, z), own, iso, node_distance);
      position[1] = static_cast<float>(node_y - 1 + along);
      position[2] = static_cast<float>(node_z);
    }
    if (crossed & 4u) {
      float* position = positions + 3 * (count_x + rank_of(edges_z, bit));
      position[0] = static_cast<float>(node_x);
      position[1] = static_cast<float>(node_y);
      const double along = crossing(density.at(plane, y, z - 1), own, iso, node_distance);
      position[2] = static_cast<float>(node_z - 1 + along);
    }
  }
  __syncwarp();
  const int vertex_count = count_x + count_z + __popc(edges_y);
  float* vertices_out = vertices + 3ll * (first[0] - count_x - vertex_offset);
  for (int i = lane; i < 3 * vertex_count; i += 32) vertices_out[i] = positions[i];
  __syncwarp();  // `staged` is free again

  // Faces. Edges of the cell between node (x, y, z) and its lower neighbours: 4 axis + b + 2 c as in cell_cases.py,
  // with b and c 1 at the node itself. At z - 1 of lane 0 they belong to the word before.
  const unsigned active_cells = rows.active();
  const bool has_faces = active_cells & bit;
  const unsigned long long triangles = has_faces ? packed[rows.cell_case(lane)] : 0;
  if (has_faces) {
    int* vertex = &edge_vertex[0][threadIdx.x];
    const unsigned edges_x_y1 = rows.here[2] ^ rows.here[3];  // along x at y - 1
    const unsigned edges_y_x1 = rows.here[1] ^ rows.here[3];  // along y at x - 1
    const int start_x = first[0] - count_x, start_x_y1 = first[2] - __popc(edges_x_y1);
    const int start_y = first[0] + count_z, start_y_x1 = first[1] + __popc(rows.edges_z(1));
    vertex[3 * kThreads] = start_x + rank_of(edges_x, bit);
    vertex[2 * kThreads] = start_x_y1 + rank_of(edges_x_y1, bit);
    vertex[7 * kThreads] = start_y + rank_of(edges_y, bit);
    vertex[6 * kThreads] = start_y_x1 + rank_of(edges_y_x1, bit);
    if (lane > 0) {
      const unsigned bit_below = bit >> 1;
      vertex[1 * kThreads] = start_x + rank_of(edges_x, bit_below);
      vertex[0 * kThreads] = start_x_y1 + rank_of(edges_x_y1, bit_below);
      vertex[5 * kThreads] = start_y + rank_of(edges_y, bit_below);
      vertex[4 * kThreads] = start_y_x1 + rank_of(edges_y_x1, bit_below);
    } else {
      // The last edge of its kind in the word before, if there is one at all.
      vertex[1 * kThreads] = last_first[0] - 1;
      vertex[0 * kThreads] = last_first[2] - 1;
      vertex[5 * kThreads] = last_first[0] + __popc(last.edges_z(0)) + __popc(last.edges_y()) - 1;
      vertex[4 * kThreads] = last_first[1] + __popc(last.edges_z(1)) + __popc(last.here[1] ^ last.here[3]) - 1;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) vertex[(11 - k) * kThreads] = first[k] + rank_of(rows.edges_z(k), bit);
  }
  const int count = static_cast<int>(triangles >> 60);
  // Faces of the lower lanes: the counts' three bits, each summed by a vote.
  int before = 0, sum = 0;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    const unsigned votes = __ballot_sync(kAllLanes, count >> k & 1);
    before += rank_of(votes, bit) << k;
    sum += __popc(votes) << k;
  }
  for (int i = 0; i < 3 * count; ++i) {
    staged[warp][3 * before + i] = edge_vertex[triangles >> (4 * i) & 15][threadIdx.x];
  }
  __syncwarp();
  int* faces_out = faces + 3ll * record.y;
  for (int i = lane; i < 3 * sum; i += 32) faces_out[i] = staged[warp][i];
}
