// Steps 1 to 3 of rasterize/definition.py for one Gaussian and one camera: what forward and backward both need.
#pragma once

// Positions and depths are computed in double, which many GPUs do slowly, but there is little of it: the order by depth
// and the pixels come out as the float64 reference has them, rounded once. All else is written so that float is enough.

struct Camera {
  float view[3][4];  // world to camera
  float focal[2], centre[2];
};

__device__ __forceinline__ Camera load_camera(const float* viewmats, const float* Ks, int c) {
  Camera camera;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) camera.view[i][j] = viewmats[16 * c + 4 * i + j];
  for (int i = 0; i < 2; ++i) camera.focal[i] = Ks[9 * c + 4 * i], camera.centre[i] = Ks[9 * c + 3 * i + 2];
  return camera;
}

// The mean in camera axes.
__device__ __forceinline__ void camera_point(const Camera& camera, const float mean[3], double point[3]) {
  for (int i = 0; i < 3; ++i)
    point[i] = static_cast<double>(camera.view[i][0]) * mean[0] + static_cast<double>(camera.view[i][1]) * mean[1] +
               static_cast<double>(camera.view[i][2]) * mean[2] + static_cast<double>(camera.view[i][3]);
}

struct Rotation {
  float unit[4], length;  // quaternion w, x, y, z; the zero quaternion counts as identity
  float matrix[3][3];
};

__device__ __forceinline__ Rotation load_rotation(const float* quat) {
  Rotation r;
  float square = 0;
  for (int k = 0; k < 4; ++k) r.unit[k] = quat[k], square += r.unit[k] * r.unit[k];
  // In single precision squares overflow above 1e19 and vanish below 1e-22: scale by the largest first.
  float largest = 0;
  for (int k = 0; k < 4; ++k) largest = fmaxf(largest, fabsf(r.unit[k]));
  if (largest > 0 && !(square > 1e-30f && square < 1e30f)) {
    square = 0;
    for (int k = 0; k < 4; ++k) square += (r.unit[k] / largest) * (r.unit[k] / largest);
    r.length = largest * sqrtf(square);
  } else {
    r.length = sqrtf(square);
  }
  for (int k = 0; k < 4; ++k) r.unit[k] = r.length > 0 ? r.unit[k] / r.length : (k == 0 ? 1 : 0);
  const float w = r.unit[0], x = r.unit[1], y = r.unit[2], z = r.unit[3];
  r.matrix[0][0] = 1 - 2 * (y * y + z * z), r.matrix[0][1] = 2 * (x * y - w * z), r.matrix[0][2] = 2 * (x * z + w * y);
  r.matrix[1][0] = 2 * (x * y + w * z), r.matrix[1][1] = 1 - 2 * (x * x + z * z), r.matrix[1][2] = 2 * (y * z - w * x);
  r.matrix[2][0] = 2 * (x * z - w * y), r.matrix[2][1] = 2 * (y * z + w * x), r.matrix[2][2] = 1 - 2 * (x * x + y * y);
  return r;
}

struct Footprint {
  float slope[2];       // x / z and y / z
  bool inside[2];      // not clamped to the widened field of view
  float over_z[2];      // focal / z: the Jacobian's diagonal
  float last[2];        // the Jacobian's last column
  float linear[2][3];   // world to pixels
  float axes[2][3];     // images of the local axes
  float areas[3];       // minors of axes times scales: of the axes 0 1, 1 2, 2 0
  float cov_x, cov_xy, cov_y, det;
};

__device__ __forceinline__ Footprint footprint(
    const Camera& camera, const double point[3], const float rotation[3][3], const float scales[3], int width,
    int height) {
  Footprint f;
  const float z = static_cast<float>(point[2]);
  for (int i = 0; i < 2; ++i) {
    const float focal = camera.focal[i], centre = camera.centre[i], size = i == 0 ? width : height;
    const float margin = FOV_MARGIN * 0.5f * size / focal;
    const float low = -centre / focal - margin, high = (size - centre) / focal + margin;
    f.slope[i] = static_cast<float>(point[i]) / z;
    f.inside[i] = f.slope[i] >= low && f.slope[i] <= high;
    f.over_z[i] = focal / z;
    f.last[i] = -f.over_z[i] * fminf(fmaxf(f.slope[i], low), high);
    for (int j = 0; j < 3; ++j) f.linear[i][j] = f.over_z[i] * camera.view[i][j] + f.last[i] * camera.view[2][j];
  }
  const float eps = EPS2D;
  float cov_x = 0, cov_xy = 0, cov_y = 0;
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < 2; ++i)
      f.axes[i][k] =
          f.linear[i][0] * rotation[0][k] + f.linear[i][1] * rotation[1][k] + f.linear[i][2] * rotation[2][k];
    const float x = scales[k] * f.axes[0][k], y = scales[k] * f.axes[1][k];
    cov_x += x * x, cov_xy += x * y, cov_y += y * y;
  }
  // Cauchy-Binet: a sum of squares, which a needle does not lose to cancellation.
  f.det = eps * (cov_x + cov_y) + eps * eps;
  for (int k = 0; k < 3; ++k) {
    const int j = (k + 1) % 3;
    f.areas[k] = scales[j] * scales[k] * (f.axes[0][k] * f.axes[1][j] - f.axes[0][j] * f.axes[1][k]);
    f.det += f.areas[k] * f.areas[k];
  }
  f.cov_x = cov_x + eps, f.cov_xy = cov_xy, f.cov_y = cov_y + eps;
  return f;
}

// Unit vector from the camera's centre to the mean; returns the distance.
__device__ __forceinline__ float view_direction(const Camera& camera, const float mean[3], float direction[3]) {
  float square = 0;
  for (int j = 0; j < 3; ++j) {
    double offset = mean[j];  // centre = -W^T translation
    for (int i = 0; i < 3; ++i) offset += static_cast<double>(camera.view[i][j]) * camera.view[i][3];
    direction[j] = static_cast<float>(offset);
    square += direction[j] * direction[j];
  }
  const float distance = sqrtf(square);
  for (int j = 0; j < 3; ++j) direction[j] /= distance;
  return distance;
}

// The first SH_COUNT spherical harmonics; see rasterize/projection.py for the order.
__device__ __forceinline__ void sh_basis(const float direction[3], float basis[SH_COUNT]) {
  const float x = direction[0], y = direction[1], z = direction[2];
  basis[0] = SH_C0;
  if constexpr (SH_COUNT > 1) basis[1] = -SH_C1 * y, basis[2] = SH_C1 * z, basis[3] = -SH_C1 * x;
  if constexpr (SH_COUNT > 4) {
    basis[4] = SH_C2A * x * y, basis[5] = -SH_C2A * y * z, basis[6] = SH_C2B * (2 * z * z - x * x - y * y);
    basis[7] = -SH_C2A * x * z, basis[8] = SH_C2C * (x * x - y * y);
  }
  if constexpr (SH_COUNT > 9) {
    const float xx = x * x, yy = y * y, zz = z * z;
    basis[9] = -SH_C3A * y * (3 * xx - yy), basis[10] = SH_C3B * x * y * z;
    basis[11] = -SH_C3C * y * (4 * zz - xx - yy), basis[12] = SH_C3D * z * (2 * zz - 3 * xx - 3 * yy);
    basis[13] = -SH_C3C * x * (4 * zz - xx - yy), basis[14] = SH_C3E * z * (xx - yy);
    basis[15] = -SH_C3A * x * (xx - 3 * yy);
  }
}

// Gradient of the direction, from the gradients `along` of the harmonics' values.
__device__ __forceinline__ void sh_direction_gradient(
    const float direction[3], const float along[SH_COUNT], float gradient[3]) {
  const float x = direction[0], y = direction[1], z = direction[2];
  float gx = 0, gy = 0, gz = 0;
  if constexpr (SH_COUNT > 1) gx = -SH_C1 * along[3], gy = -SH_C1 * along[1], gz = SH_C1 * along[2];
  if constexpr (SH_COUNT > 4) {
    gx += SH_C2A * (y * along[4] - z * along[7]) + 2 * x * (SH_C2C * along[8] - SH_C2B * along[6]);
    gy += SH_C2A * (x * along[4] - z * along[5]) - 2 * y * (SH_C2C * along[8] + SH_C2B * along[6]);
    gz += 4 * SH_C2B * z * along[6] - SH_C2A * (y * along[5] + x * along[7]);
  }
  if constexpr (SH_COUNT > 9) {
    const float xx = x * x, yy = y * y, zz = z * z;
    gx += -6 * SH_C3A * x * y * along[9] + SH_C3B * y * z * along[10] + 2 * SH_C3C * x * y * along[11];
    gx += -6 * SH_C3D * x * z * along[12] - SH_C3C * (4 * zz - 3 * xx - yy) * along[13];
    gx += 2 * SH_C3E * x * z * along[14] - 3 * SH_C3A * (xx - yy) * along[15];
    gy += -3 * SH_C3A * (xx - yy) * along[9] + SH_C3B * x * z * along[10];
    gy += -SH_C3C * (4 * zz - xx - 3 * yy) * along[11] - 6 * SH_C3D * y * z * along[12];
    gy += 2 * SH_C3C * x * y * along[13] - 2 * SH_C3E * y * z * along[14] + 6 * SH_C3A * x * y * along[15];
    gz += SH_C3B * x * y * along[10] - 8 * SH_C3C * y * z * along[11];
    gz += SH_C3D * (6 * zz - 3 * xx - 3 * yy) * along[12] - 8 * SH_C3C * x * z * along[13];
    gz += SH_C3E * (xx - yy) * along[14];
  }
  gradient[0] = gx, gradient[1] = gy, gradient[2] = gz;
}
