// A z-buffer of triangles for a batch of cameras, and what is drawn from it.
// Reference: mesh_extract/mesh_raster_numba.py, which gives the same bits: coverage, depth and colours are computed in
// double precision in the same order, and a pixel's face is the maximum of a 64-bit key, whatever the order of threads.
#include "exact.cuh"

constexpr int kWarp = 32;

// The larger key wins: the larger inverse depth (positive floats are ordered as their bits), then the earlier face.
__device__ inline unsigned long long pixel_key(float inverse_depth, int face) {
  return (static_cast<unsigned long long>(__float_as_uint(inverse_depth)) << 32) | (0xffffffffu - face);
}

__device__ inline int key_face(unsigned long long key) {
  return key == 0 ? -1 : static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}

__device__ inline float key_inverse_depth(unsigned long long key) {
  return __uint_as_float(static_cast<unsigned>(key >> 32));
}

__device__ inline double least(double a, double b, double c) { return fmin(a, fmin(b, c)); }
__device__ inline double most(double a, double b, double c) { return fmax(a, fmax(b, c)); }

// One warp a face of one camera, its lanes side by side over the pixels of the face's box.
extern "C" __global__ void fill_faces(
    const float* __restrict__ screen,  // [C, V, 3] column and row in pixels, depth
    const int* __restrict__ faces,     // [F, 3]
    int vertex_count, int face_count, int width, int height,
    float near,  // faces that reach nearer to the camera are left out
    int cull,
    unsigned long long* __restrict__ nearest)  // [C, H, W] in: 0; out: pixel_key, 0 where nothing is
{
  const int face = blockIdx.x * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (face >= face_count) return;
  const long long camera = blockIdx.y;
  const float* corner0 = screen + 3 * (camera * vertex_count + faces[3 * face]);
  const float* corner1 = screen + 3 * (camera * vertex_count + faces[3 * face + 1]);
  const float* corner2 = screen + 3 * (camera * vertex_count + faces[3 * face + 2]);
  const double z0 = corner0[2], z1 = corner1[2], z2 = corner2[2];
  if (!(z0 > near && z1 > near && z2 > near)) return;
  const Exact x0 = corner0[0], y0 = corner0[1];
  const Exact x1 = corner1[0], y1 = corner1[1];
  const Exact x2 = corner2[0], y2 = corner2[1];
  // Negative: counter-clockwise to the eye, since rows go down. NaN fails both comparisons.
  const Exact area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0);
  if (!(area.value < 0.0 || (area.value > 0.0 && !cull))) return;
  // Kept within the picture before they become whole numbers, which far corners would not fit into.
  const double edge_x = width, edge_y = height;
  const int left = static_cast<int>(ceil(fmin(fmax(least(x0.value, x1.value, x2.value), 0.0), edge_x) - 0.5));
  const int right = static_cast<int>(floor(fmin(fmax(most(x0.value, x1.value, x2.value), 0.0), edge_x) - 0.5));
  const int top = static_cast<int>(ceil(fmin(fmax(least(y0.value, y1.value, y2.value), 0.0), edge_y) - 0.5));
  const int bottom = static_cast<int>(floor(fmin(fmax(most(y0.value, y1.value, y2.value), 0.0), edge_y) - 0.5));
  if (left > right || top > bottom) return;

  const Exact per_area = Exact(1.0) / area;
  // Barycentrics as a + dx * x (+ dy * y): b_k is twice the signed area opposite corner k over the face's.
  const Exact dx0 = (y1 - y2) * per_area, dy0 = (x2 - x1) * per_area;
  const Exact dx1 = (y2 - y0) * per_area, dy1 = (x0 - x2) * per_area;
  const Exact dx2 = (y0 - y1) * per_area, dy2 = (x1 - x0) * per_area;
  const Exact w0 = Exact(1.0) / Exact(z0), w1 = Exact(1.0) / Exact(z1), w2 = Exact(1.0) / Exact(z2);
  unsigned long long* picture = nearest + camera * height * width;
  const int columns = right - left + 1;
  const long long pixels = static_cast<long long>(columns) * (bottom - top + 1);
  for (long long p = threadIdx.x % kWarp; p < pixels; p += kWarp) {
    const int y = top + static_cast<int>(p / columns), x = left + static_cast<int>(p % columns);
    const Exact px = x + 0.5, py = y + 0.5;
    const Exact b0 = ((py - y1) * dy0 - x1 * dx0) + px * dx0;
    const Exact b1 = ((py - y2) * dy1 - x2 * dx1) + px * dx1;
    const Exact b2 = ((py - y0) * dy2 - x0 * dx2) + px * dx2;
    // A rounding error's width beyond the border: no pinholes between neighbours; the depth test settles it.
    if (b0.value >= -1e-12 && b1.value >= -1e-12 && b2.value >= -1e-12) {
      const float w = static_cast<float>((b0 * w0 + b1 * w1 + b2 * w2).value);
      if (!(w > 0.0f)) continue;
      const unsigned long long key = pixel_key(w, face);
      unsigned long long* there = picture + static_cast<long long>(y) * width + x;
      if (key > *there) atomicMax(there, key);
    }
  }
}

struct Weights {
  Exact b0, b1, b2;
};

// Perspective-correct barycentrics of a face at a point on the screen, kept within the face.
__device__ inline Weights corner_weights(
    const float* __restrict__ screen, const int* __restrict__ face, double column, double row)
{
  const float *corner0 = screen + 3ll * face[0], *corner1 = screen + 3ll * face[1], *corner2 = screen + 3ll * face[2];
  const Exact px = column, py = row;
  const Exact x0 = corner0[0], y0 = corner0[1], x1 = corner1[0], y1 = corner1[1], x2 = corner2[0], y2 = corner2[1];
  Weights weights;
  weights.b0 = absolute((x1 - px) * (y2 - py) - (x2 - px) * (y1 - py)) / Exact(corner0[2]);
  weights.b1 = absolute((x2 - px) * (y0 - py) - (x0 - px) * (y2 - py)) / Exact(corner1[2]);
  weights.b2 = absolute((x0 - px) * (y1 - py) - (x1 - px) * (y0 - py)) / Exact(corner2[2]);
  const Exact scale = Exact(1.0) / (weights.b0 + weights.b1 + weights.b2);
  weights.b0 = weights.b0 * scale;
  weights.b1 = weights.b1 * scale;
  weights.b2 = weights.b2 * scale;
  return weights;
}

// One thread a pixel: its face, barycentrics and depth.
extern "C" __global__ void interpolate_faces(
    const float* __restrict__ screen, const int* __restrict__ faces,
    const unsigned long long* __restrict__ nearest,  // [C, H, W]
    int vertex_count, int width, int height, long long pixel_count,
    int* __restrict__ face_ids,        // [C, H, W] out: -1 where nothing is
    float* __restrict__ barycentrics,  // [C, H, W, 3] out: 0 where nothing is
    float* __restrict__ depth)         // [C, H, W] out: 0 where nothing is
{
  const long long pixel = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pixel >= pixel_count) return;
  const long long picture = static_cast<long long>(width) * height;
  const long long camera = pixel / picture;
  const int y = static_cast<int>(pixel % picture / width), x = static_cast<int>(pixel % width);
  const unsigned long long key = nearest[pixel];
  const int face = key_face(key);
  float b0 = 0.0f, b1 = 0.0f, b2 = 0.0f, z = 0.0f;
  if (face >= 0) {
    const float* corners = screen + 3 * camera * vertex_count;
    const Weights weights = corner_weights(corners, faces + 3ll * face, x + 0.5, y + 0.5);
    b0 = static_cast<float>(weights.b0.value);
    b1 = static_cast<float>(weights.b1.value);
    b2 = static_cast<float>(weights.b2.value);
    z = static_cast<float>(1.0 / static_cast<double>(key_inverse_depth(key)));
  }
  face_ids[pixel] = face;
  barycentrics[3 * pixel] = b0;
  barycentrics[3 * pixel + 1] = b1;
  barycentrics[3 * pixel + 2] = b2;
  depth[pixel] = z;
}

// One thread a pixel of the result: the mean of its scale^2 samples over the background. A sample shows the texture,
// bilinear, at the uvs of `uv_faces`.
extern "C" __global__ void shade_pixels(
    const float* __restrict__ screen,  // [C, V, 3], in samples
    const int* __restrict__ faces,
    const unsigned long long* __restrict__ nearest,  // [C, H scale, W scale]
    int vertex_count, int width, int height, int scale, long long pixel_count,
    const int* __restrict__ uv_faces,   // [F, 3] indices into uvs
    const float* __restrict__ uvs,      // [T, 2], v up
    const float* __restrict__ texture,  // [texture_height, texture_width, 3]
    int texture_width, int texture_height,
    const float* __restrict__ background,  // [3]
    float* __restrict__ rgb, float* __restrict__ alpha, float* __restrict__ depth)  // [C, H, W (, 3)] out
{
  const long long pixel = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pixel >= pixel_count) return;
  const long long picture = static_cast<long long>(width) * height;
  const long long camera = pixel / picture;
  const int y = static_cast<int>(pixel % picture / width), x = static_cast<int>(pixel % width);
  screen += 3 * camera * vertex_count;
  nearest += camera * picture * scale * scale;

  Exact sum[3] = {0.0, 0.0, 0.0}, z = 0.0;
  int hits = 0;
  for (int sample = 0; sample < scale * scale; ++sample) {
    const int row = y * scale + sample / scale, column = x * scale + sample % scale;
    const unsigned long long key = nearest[static_cast<long long>(row) * width * scale + column];
    const int face = key_face(key);
    if (face < 0) continue;
    ++hits;
    z = z + Exact(1.0) / Exact(key_inverse_depth(key));
    const Weights b = corner_weights(screen, faces + 3ll * face, column + 0.5, row + 0.5);
    const int i = uv_faces[3 * face], j = uv_faces[3 * face + 1], k = uv_faces[3 * face + 2];
    const Exact u = b.b0 * uvs[2 * i] + b.b1 * uvs[2 * j] + b.b2 * uvs[2 * k];
    const Exact v = b.b0 * uvs[2 * i + 1] + b.b1 * uvs[2 * j + 1] + b.b2 * uvs[2 * k + 1];
    const Exact across = u * texture_width - 0.5, down = (Exact(1.0) - v) * texture_height - 0.5;
    const Exact tx = fmin(fmax(across.value, 0.0), texture_width - 1.0);
    const Exact ty = fmin(fmax(down.value, 0.0), texture_height - 1.0);
    const int x0 = static_cast<int>(tx.value), y0 = static_cast<int>(ty.value);
    const int x1 = min(x0 + 1, texture_width - 1), y1 = min(y0 + 1, texture_height - 1);
    const Exact fx = tx - x0, fy = ty - y0, gx = Exact(1.0) - fx, gy = Exact(1.0) - fy;
    const Exact w00 = gx * gy, w01 = fx * gy, w10 = gx * fy, w11 = fx * fy;
    const float* upper = texture + 3 * static_cast<long long>(y0) * texture_width;
    const float* lower = texture + 3 * static_cast<long long>(y1) * texture_width;
    for (int channel = 0; channel < 3; ++channel)
      sum[channel] = sum[channel] + (w00 * upper[3 * x0 + channel] + w01 * upper[3 * x1 + channel]
                                     + w10 * lower[3 * x0 + channel] + w11 * lower[3 * x1 + channel]);
  }
  const Exact per_sample = 1.0 / (scale * scale);
  const Exact coverage = Exact(hits) * per_sample;
  for (int channel = 0; channel < 3; ++channel)
    rgb[3 * pixel + channel] = static_cast<float>(
        (sum[channel] * per_sample + (Exact(1.0) - coverage) * background[channel]).value);
  alpha[pixel] = static_cast<float>(coverage.value);
  depth[pixel] = static_cast<float>((z * per_sample).value);
}
