// The density field with one thread a node over all Gaussians, each behind a test of its support box: the article's
// fused kernel, on a grid of any size and with whole supports. All in node units. Bound by the box tests, nodes times
// Gaussians of them, and in them by shared memory; the tiled kernels of extract_fields.cu do the same in a small share.
// Reference: mesh_extract/fields_loops.py.

constexpr int kBlock = BLOCK;  // threads
constexpr int kChunk = 256;  // boxes in shared memory at a time: 6 KiB

// Eight blocks a multiprocessor, where it holds 2,048 threads (elsewhere fewer): with the 40 registers that the
// compiler would take by itself there is room for six, too few to hide how long shared memory takes to answer.
extern "C" __global__ void __launch_bounds__(kBlock, 8) extract_fields_fused(
    const float4* __restrict__ boxes_xy,  // [count] centre, half extents, negative where it contributes nowhere
    const float2* __restrict__ boxes_z,   // [count] centre, half extent
    const float4* __restrict__ records,  // [count, 3] l0 l1 l2 l3, l4 l5 log2-opacity -, what rounding the centre left
    int count, int first_x, int size_x, int size_y, int size_z,
    float* __restrict__ density) {  // [size_x, size_y, size_z] out
  // All threads walk all boxes: a block reads them from memory once, not every thread. The loop is bound by reading
  // shared memory, so a box is as few bytes as it can be.
  __shared__ float4 staged_xy[kChunk];
  __shared__ float2 staged_z[kChunk];
  const long long node = blockIdx.x * (long long)kBlock + threadIdx.x;
  const bool inside = node < (long long)size_x * size_y * size_z;
  const long long row = node / size_z;
  const float x = first_x + (int)(row / size_y), y = (int)(row % size_y), z = (int)(node % size_z);
  float sum = 0.0f;
  for (int first = 0; first < count; first += kChunk) {
    const int here = min(kChunk, count - first);
    __syncthreads();
    for (int k = threadIdx.x; k < here; k += kBlock) {
      staged_xy[k] = boxes_xy[first + k];
      staged_z[k] = boxes_z[first + k];
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < here; ++k) {
      const float4 xy = staged_xy[k];  // centre x and y, half extents x and y
      const float2 along_z = staged_z[k];
      if (fabsf(x - xy.x) <= xy.z & fabsf(y - xy.y) <= xy.w & fabsf(z - along_z.x) <= along_z.y) {
        const long long i = first + k;
        const float4 a = records[3 * i], b = records[3 * i + 1], rest = records[3 * i + 2];
        // The whole part first, which is exact: far from node 0 a mean is worth more digits than a float holds.
        const float dx = x - rintf(xy.x) - rest.x, dy = y - rintf(xy.y) - rest.y;
        const float dz = z - rintf(along_z.x) - rest.z;
        const float u = a.x * dx, v = a.y * dx + a.z * dy, w = a.w * dx + b.x * dy + b.y * dz;
        const float value = exp2f(b.z - (u * u + v * v + w * w));
        if (value >= CUTOFF) sum += value;
      }
    }
  }
  if (inside) density[node] = sum;
}
