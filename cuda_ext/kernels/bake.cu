// Texture baking: pictures of a surface carried back to its texels, and the nearest texel that has a colour.
// Reference: mesh_extract/backproject.py and mesh_extract/fill.py.

// One thread a texel: the mean of the views' colours where they see it, weighted by confidence * cosine^sharpness.
extern "C" __global__ void backproject(
    const float* __restrict__ positions,   // [T, 3], world units
    const float* __restrict__ normals,     // [T, 3], of length one
    const float* __restrict__ viewmats,    // [C, 4, 4]
    const float* __restrict__ intrinsics,  // [C, 3, 3]
    const float* __restrict__ centers,     // [C, 3]
    const float* __restrict__ pictures,    // [C, H, W, 3]
    const float* __restrict__ confidence,  // [C, H, W]
    const float* __restrict__ depth,       // [C, H, W], 0 beside the surface
    int texel_count, int camera_count, int width, int height, float sharpness, float least_cosine,
    float* __restrict__ colors,   // [T, 3] out: 0 where no view sees the texel
    float* __restrict__ weights)  // [T] out
{
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= texel_count) return;
  const float px = positions[3ll * t], py = positions[3ll * t + 1], pz = positions[3ll * t + 2];
  const float nx = normals[3ll * t], ny = normals[3ll * t + 1], nz = normals[3ll * t + 2];
  float red = 0.0f, green = 0.0f, blue = 0.0f, total = 0.0f;
  for (int c = 0; c < camera_count; ++c) {
    const float tx = centers[3 * c] - px, ty = centers[3 * c + 1] - py, tz = centers[3 * c + 2] - pz;
    float cosine = nx * tx + ny * ty + nz * tz;
    if (!(cosine > 0.0f)) continue;
    cosine /= sqrtf(tx * tx + ty * ty + tz * tz);
    if (!(cosine > least_cosine)) continue;
    const float* view = viewmats + 16 * c;
    const float z = view[8] * px + view[9] * py + view[10] * pz + view[11];
    if (!(z > 0.0f)) continue;
    const float* k = intrinsics + 9 * c;
    const float x = k[0] * (view[0] * px + view[1] * py + view[2] * pz + view[3]) / z + k[2] - 0.5f;
    const float y = k[4] * (view[4] * px + view[5] * py + view[6] * pz + view[7]) / z + k[5] - 0.5f;
    if (!(x >= 0.0f && y >= 0.0f && x < width - 1 && y < height - 1)) continue;
    const int x0 = static_cast<int>(x), y0 = static_cast<int>(y);
    const float fx = x - x0, fy = y - y0;
    const float slope = sqrtf(fmaxf(1.0f - cosine * cosine, 0.0f)) / cosine;
    // A neighbour lies up to sqrt(2) pixels away on the slope; 1.5 pixels more for facets and curvature.
    const float tolerance = z / k[0] * (1.5f + 2.0f * slope);
    const long long corner = (static_cast<long long>(c) * height + y0) * width + x0;
    bool seen = true;
    float r = 0.0f, g = 0.0f, b = 0.0f, w = 0.0f;
    for (int tap = 0; tap < 4; ++tap) {
      const long long pixel = corner + (tap & 1) + (tap >> 1) * width;
      const float there = depth[pixel];
      if (there == 0.0f || fabsf(there - z) > tolerance) {
        seen = false;
        break;
      }
      const float part = (tap & 1 ? fx : 1.0f - fx) * (tap >> 1 ? fy : 1.0f - fy) * confidence[pixel];
      r += part * pictures[3 * pixel];
      g += part * pictures[3 * pixel + 1];
      b += part * pictures[3 * pixel + 2];
      w += part;
    }
    if (seen && w > 0.0f) {
      const float facing = sharpness == 1.0f ? cosine : powf(cosine, sharpness);
      red += facing * r;
      green += facing * g;
      blue += facing * b;
      total += facing * w;
    }
  }
  const float scale = total > 0.0f ? 1.0f / total : 0.0f;
  weights[t] = total;
  colors[3ll * t] = red * scale;
  colors[3ll * t + 1] = green * scale;
  colors[3ll * t + 2] = blue * scale;
}

// One thread a pixel: the row of the nearest marked pixel of its column, the upper of two; -1 where there is none.
extern "C" __global__ void nearest_in_columns(
    const unsigned char* __restrict__ marked,  // [H, W]
    int width, int height, int* __restrict__ rows)  // [H, W] out
{
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= width) return;
  int found = -1;
  for (int d = 0; found < 0 && (y - d >= 0 || y + d < height); ++d) {
    if (y - d >= 0 && marked[static_cast<long long>(y - d) * width + x]) found = y - d;
    else if (y + d < height && marked[static_cast<long long>(y + d) * width + x]) found = y + d;
  }
  rows[static_cast<long long>(y) * width + x] = found;
}

// One thread a pixel: the nearest marked pixel of all, of several the first by row, then by column.
extern "C" __global__ void nearest_of_columns(
    const int* __restrict__ rows,  // [H, W] as nearest_in_columns gives them
    int width, int height,
    long long* __restrict__ nearest)  // [H, W] out: its index in the picture; -1 where nothing is marked
{
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= width) return;
  const int* row = rows + static_cast<long long>(y) * width;
  long long best = 0x7fffffffffffffffll, found = -1;
  for (long long d = 0; d * d <= best && (x - d >= 0 || x + d < width); ++d)
    for (int side = 0; side < 2; ++side) {
      const long long column = side ? x + d : x - d;
      if (column < 0 || column >= width || row[column] < 0) continue;
      const long long rise = row[column] - y, distance = d * d + rise * rise;
      const long long index = row[column] * static_cast<long long>(width) + column;
      if (distance < best || (distance == best && index < found)) best = distance, found = index;
    }
  nearest[static_cast<long long>(y) * width + x] = found;
}
