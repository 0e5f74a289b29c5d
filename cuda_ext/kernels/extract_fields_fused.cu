// The density field with one thread a node over all Gaussians, each behind a test of its support box: the article's
// fused kernel, on a grid of any size and with whole supports. All in node units. Bound by the box tests, nodes times
// Gaussians of them; the tiled kernels of extract_fields.cu do the same in a small share of them.
// Reference: mesh_extract/fields_loops.py.

extern "C" __global__ void __launch_bounds__(256) extract_fields_fused(
    const float4* __restrict__ boxes,    // [count, 2] centre, half extents, negative where it contributes nowhere
    const float4* __restrict__ records,  // [count, 3] l0 l1 l2 l3, l4 l5 log2-opacity -, what rounding the centre left
    int count, int first_x, int size_x, int size_y, int size_z,
    float* __restrict__ density) {  // [size_x, size_y, size_z] out
  const long long node = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (node >= (long long)size_x * size_y * size_z) return;
  const long long row = node / size_z;
  const float x = first_x + (int)(row / size_y), y = (int)(row % size_y), z = (int)(node % size_z);
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) {
    const float4 centre = boxes[2ll * i], half = boxes[2ll * i + 1];
    if (fabsf(x - centre.x) <= half.x & fabsf(y - centre.y) <= half.y & fabsf(z - centre.z) <= half.z) {
      const float4 a = records[3ll * i], b = records[3ll * i + 1], rest = records[3ll * i + 2];
      // The whole part first, which is exact: far from node 0 a mean is worth more digits than a float holds.
      const float dx = x - rintf(centre.x) - rest.x, dy = y - rintf(centre.y) - rest.y;
      const float dz = z - rintf(centre.z) - rest.z;
      const float u = a.x * dx, v = a.y * dx + a.z * dy, w = a.w * dx + b.x * dy + b.y * dz;
      const float value = exp2f(b.z - (u * u + v * v + w * w));
      if (value >= CUTOFF) sum += value;
    }
  }
  density[node] = sum;
}
