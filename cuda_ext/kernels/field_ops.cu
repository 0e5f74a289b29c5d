// Operations on the nodes of a grid or the pixels of a picture: blur, distances, and parts that hang together.
// References: mesh_extract/blur.py and mesh_extract/morphology.py.
#include "exact.cuh"

// Blur along one axis with a symmetric kernel; what lies beyond the border counts as 0. Pairs from the outermost one
// inwards, each sum rounded by itself: scipy's order, so the result is the same.
template <class Value>
__device__ void blur(
    const Value* __restrict__ values, const double* __restrict__ kernel, int radius, long long length, long long inner,
    long long count, Value* __restrict__ blurred)
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const long long at = i / inner % length;
  Exact sum = Exact(values[i]) * kernel[0];
  for (int d = radius; d > 0; --d) {
    const Exact before = at >= d ? values[i - d * inner] : Value(0);
    const Exact after = at + d < length ? values[i + d * inner] : Value(0);
    sum = sum + (before + after) * kernel[d];
  }
  blurred[i] = static_cast<Value>(sum.value);
}

extern "C" __global__ void blur_axis(
    const float* __restrict__ values,   // [outer, length, inner]
    const double* __restrict__ kernel,  // [radius + 1] from the middle outwards
    int radius, long long length, long long inner, long long count,
    float* __restrict__ blurred)
{
  blur(values, kernel, radius, length, inner, count, blurred);
}

extern "C" __global__ void blur_axis_double(
    const double* __restrict__ values, const double* __restrict__ kernel, int radius, long long length, long long inner,
    long long count, double* __restrict__ blurred)
{
  blur(values, kernel, radius, length, inner, count, blurred);
}

// Squared distance to the nearest marked node along the first axis alone, `far` where there is none.
extern "C" __global__ void distance_in_lines(
    const unsigned char* __restrict__ marked,  // [outer, length, inner]
    int far, long long length, long long inner, long long count,
    int* __restrict__ squared)
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const long long at = i / inner % length;
  int found = far;
  for (long long d = 0; found == far && (d <= at || at + d < length); ++d)
    if ((d <= at && marked[i - d * inner]) || (at + d < length && marked[i + d * inner]))
      found = static_cast<int>(d * d);
  squared[i] = found;
}

// One more axis: min over the line of its values plus the squared way to them, outwards until the way alone is longer.
extern "C" __global__ void distance_across_lines(
    const int* __restrict__ values,  // [outer, length, inner], over the axes so far
    long long length, long long inner, long long count,
    int* __restrict__ squared)
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const long long at = i / inner % length;
  int best = values[i];
  for (long long d = 1; d * d < best && (d <= at || at + d < length); ++d) {
    const int way = static_cast<int>(d * d);
    if (d <= at) best = min(best, values[i - d * inner] + way);
    if (at + d < length) best = min(best, values[i + d * inner] + way);
  }
  squared[i] = best;
}

// Parts of a mask by union-find. A node's parent is a node of the same part with a smaller index, a root its own.

__device__ inline int find_root(int* parents, int node) {
  int parent = parents[node];
  while (parent != node) {
    const int grandparent = parents[parent];
    // Halves the way for those who come later. Whatever any thread writes here is a smaller node of the same part,
    // and a root is never written here, so it does not matter who writes last.
    if (grandparent != parent) parents[node] = grandparent;
    node = parent;
    parent = grandparent;
  }
  return node;
}

__device__ inline void join(int* parents, int a, int b) {
  while (true) {
    a = find_root(parents, a);
    b = find_root(parents, b);
    if (a == b) return;
    if (a < b) {
      const int swapped = a;
      a = b;
      b = swapped;
    }
    const int before = atomicMin(parents + a, b);
    if (before == a) return;  // it still was a root: joined
    a = before;               // another thread gave it a parent meanwhile, which has to be joined as well
  }
}

// Every marked node starts below the marked node before it in its row of up to 32, most of the joining along rows.
extern "C" __global__ void start_parts(
    const unsigned char* __restrict__ mask,  // [X, Y, Z]
    int size_z, long long count,
    int* __restrict__ parents)  // [X, Y, Z] out; -1 outside the mask
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int start = -1;
  if (mask[i]) {
    start = static_cast<int>(i);
    for (int z = static_cast<int>(i % size_z); z % 32 != 0 && mask[start - 1]; --z) --start;
  }
  parents[i] = start;
}

// Joins every marked node with the marked neighbours before it: 3 that share a face, or all 13.
extern "C" __global__ void join_parts(
    const unsigned char* __restrict__ mask, int size_x, int size_y, int size_z, int corners, long long count,
    int* parents)
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count || !mask[i]) return;
  const int z = static_cast<int>(i % size_z);
  const int y = static_cast<int>(i / size_z % size_y);
  const int x = static_cast<int>(i / size_z / size_y);
  for (int dx = -1; dx <= 0; ++dx)
    for (int dy = -1; dy <= 1; ++dy)
      for (int dz = -1; dz <= 1; ++dz) {
        if (dx == 0 && (dy > 0 || (dy == 0 && dz >= 0))) continue;  // those come after this node
        if (!corners && abs(dx) + abs(dy) + abs(dz) != 1) continue;
        if (dx == 0 && dy == 0 && z % 32 != 0) continue;  // start_parts has joined these
        if (x + dx < 0 || y + dy < 0 || y + dy >= size_y || z + dz < 0 || z + dz >= size_z) continue;
        const long long other = i + (static_cast<long long>(dx) * size_y + dy) * size_z + dz;
        if (mask[other]) join(parents, static_cast<int>(i), static_cast<int>(other));
      }
}

// Marks the roots of the parts that hold a seed.
extern "C" __global__ void mark_parts(
    const unsigned char* __restrict__ seeds, long long count, int* parents,
    unsigned char* __restrict__ held)  // [X, Y, Z] in: 0
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count && seeds[i] && parents[i] >= 0) held[find_root(parents, static_cast<int>(i))] = 1;
}

// Spreads the marks from the roots over their parts.
extern "C" __global__ void spread_parts(
    const unsigned char* __restrict__ held, long long count, int* parents,
    unsigned char* __restrict__ reached)  // [X, Y, Z] out
{
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) reached[i] = parents[i] >= 0 ? held[find_root(parents, static_cast<int>(i))] : 0;
}
