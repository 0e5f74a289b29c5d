"""Steps 1 to 3 of `rasterize.definition` and their gradients, in closed form, for the CPU.

What `rasterize.projection` computes with torch. Inside, everything is float64: it costs scalar code nothing, and the
order by depth and the positions in pixels come out as the float64 reference has them, rounded once.
Kernels work on the Gaussians `first` to `last`.
Constants of the definition come as the argument `limits`, since numba's cache would not see them change elsewhere.
"""

import math

import numpy as np
from numba import njit

from gaussians import SH_C0
from rasterize.projection import SH_C1, SH_C2, SH_C3

_C0, _C1 = SH_C0, SH_C1
_C2A, _C2B, _C2C = SH_C2
_C3A, _C3B, _C3C, _C3D, _C3E = SH_C3

_kernel = njit(cache=True, nogil=True, error_model="numpy")
# Compiled into the kernels that call it, hence no cache and no way in from Python.
_inner = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@_kernel
def project_forward(
    first, last, means, quats, log_scales, logits, sh0, shN, viewmats, Ks, width, height, limits,
    means2d, conics, depths, colors, opacities, extents, radii,
):  # fmt: skip
    """Fill the last seven arrays (see `projection.Projected`); culled Gaussians get zeros."""
    eps2d, near, alpha_min = limits[0], limits[1], limits[2]
    mean_max, scale_max = limits[4], limits[5]
    count = 1 + shN.shape[1]
    rotation, scales, unit = np.empty((3, 3)), np.empty(3), np.empty(4)
    jacobian, linear, axes = np.empty((2, 3)), np.empty((2, 3)), np.empty((2, 3))
    point, direction, basis = np.empty(3), np.empty(3), np.empty(16)
    for g in range(first, last):
        opacity = 1.0 / (1.0 + math.exp(-float(logits[g])))
        total = opacity + abs(logits[g])  # finite exactly if every parameter is
        bounded = True
        for k in range(3):
            scales[k] = math.exp(float(log_scales[g, k]))
            total += abs(log_scales[g, k]) + abs(sh0[g, 0, k])
            bounded &= abs(means[g, k]) <= mean_max and scales[k] <= scale_max  # false for NaN
            for j in range(count - 1):
                total += abs(shN[g, j, k])
        for k in range(4):
            total += abs(float(quats[g, k]))
        drawable = bounded and total < math.inf and opacity >= alpha_min
        opacities[g] = opacity if drawable else 0.0
        if drawable:
            _rotation(quats[g], unit, rotation)
            reach = 2.0 * math.log(opacity / alpha_min)
        for c in range(viewmats.shape[0]):
            means2d[c, g, 0] = means2d[c, g, 1] = depths[c, g] = extents[c, g, 0] = extents[c, g, 1] = 0.0
            for k in range(3):
                conics[c, g, k] = colors[c, g, k] = 0.0
            radii[c, g] = 0
            if not drawable:
                continue
            _camera_point(means[g], viewmats[c], point)
            if not point[2] > near:
                continue
            u, v = _perspective(point, viewmats[c], Ks[c], width, height, limits, jacobian, linear)
            cov_x, cov_xy, cov_y, det = _covariance(linear, rotation, scales, eps2d, axes)
            reach_x, reach_y = math.sqrt(reach * cov_x), math.sqrt(reach * cov_y)
            if not (u + reach_x > 0 and u - reach_x < width and v + reach_y > 0 and v - reach_y < height):
                continue
            means2d[c, g, 0], means2d[c, g, 1], depths[c, g] = u, v, point[2]
            conics[c, g, 0], conics[c, g, 1], conics[c, g, 2] = cov_y / det, -cov_xy / cov_y, 1.0 / cov_y
            extents[c, g, 0], extents[c, g, 1] = reach_x, reach_y
            radii[c, g] = int(math.ceil(min(max(reach_x, reach_y, 1.0), 1073741824.0)))
            _view_direction(means[g], viewmats[c], direction)
            _sh_basis(direction, count, basis)
            for k in range(3):
                color = 0.5 + basis[0] * sh0[g, 0, k]
                for j in range(1, count):
                    color += basis[j] * shN[g, j - 1, k]
                colors[c, g, k] = max(color, 0.0)


@_kernel
def project_backward(
    first, last, means, quats, log_scales, logits, sh0, shN, viewmats, Ks, width, height, limits,
    conics, colors, radii, g_means2d, g_conics, g_depths, g_colors, g_opacities,
    g_means, g_quats, g_log_scales, g_logits, g_sh0, g_shN,
):  # fmt: skip
    """Fill the last six arrays with the gradients of the parameters; cameras are summed in order."""
    eps2d = limits[0]
    count = 1 + shN.shape[1]
    rotation, scales, unit = np.empty((3, 3)), np.empty(3), np.empty(4)
    jacobian, linear, axes = np.empty((2, 3)), np.empty((2, 3)), np.empty((2, 3))
    point, direction, basis = np.empty(3), np.empty(3), np.empty(16)
    g_point, g_rotation, g_axes, g_linear = np.empty(3), np.empty((3, 3)), np.empty((2, 3)), np.empty((2, 3))
    g_mean, g_scale, g_sh, g_direction = np.empty(3), np.empty(3), np.empty((16, 3)), np.empty(3)
    along = np.empty(16)  # gradient of each basis function's value
    for g in range(first, last):
        g_mean[:], g_scale[:], g_rotation[:], g_sh[:] = 0.0, 0.0, 0.0, 0.0
        seen = False
        for c in range(viewmats.shape[0]):
            if radii[c, g] == 0:
                continue
            if not seen:
                seen = True
                length = _rotation(quats[g], unit, rotation)
                for k in range(3):
                    scales[k] = math.exp(float(log_scales[g, k]))
            view = viewmats[c]
            _camera_point(means[g], view, point)
            z = point[2]
            _perspective(point, view, Ks[c], width, height, limits, jacobian, linear)
            cov_x, cov_xy, cov_y, det = _covariance(linear, rotation, scales, eps2d, axes)

            # The conic's factors are det^-1 cov_y, -cov_xy / cov_y and 1 / cov_y; cov = M M^T: d M = 2 d cov M.
            a, b, d = cov_y / det, -cov_xy / cov_y, 1.0 / cov_y
            ga, gb, gd = a * a * g_conics[c, g, 0], d * g_conics[c, g, 1], d * d * g_conics[c, g, 2]
            cov00, cov01, cov11 = -ga, -(b * ga + 0.5 * gb), -(b * b * ga + b * gb + gd)
            for k in range(3):
                m0, m1 = axes[0, k] * scales[k], axes[1, k] * scales[k]
                gm0, gm1 = 2.0 * (cov00 * m0 + cov01 * m1), 2.0 * (cov01 * m0 + cov11 * m1)
                g_scale[k] += gm0 * m0 + gm1 * m1  # already that of the logarithm: times the scale
                g_axes[0, k], g_axes[1, k] = gm0 * scales[k], gm1 * scales[k]
            for i in range(2):
                for j in range(3):
                    g_linear[i, j] = 0.0
                    for k in range(3):
                        g_linear[i, j] += g_axes[i, k] * rotation[j, k]
            for j in range(3):
                for k in range(3):
                    g_rotation[j, k] += linear[0, j] * g_axes[0, k] + linear[1, j] * g_axes[1, k]

            # jacobian = [[f / z, 0, -f slope / z]]; the slope's gradient stops where it is clamped.
            g_point[2] = g_depths[c, g]
            for i in range(2):
                focal = Ks[c, i, i]
                g_diagonal, g_last = 0.0, 0.0
                for j in range(3):
                    g_diagonal += g_linear[i, j] * view[i, j]
                    g_last += g_linear[i, j] * view[2, j]
                slope = point[i] / z
                g_slope = focal * g_means2d[c, g, i]
                if jacobian[i, 2] == -(focal / z) * slope:
                    g_slope -= focal / z * g_last
                g_point[i] = g_slope / z
                g_point[2] -= (g_slope * slope + g_diagonal * focal / z + g_last * jacobian[i, 2]) / z
            for j in range(3):
                g_mean[j] += view[0, j] * g_point[0] + view[1, j] * g_point[1] + view[2, j] * g_point[2]

            distance = _view_direction(means[g], view, direction)
            _sh_basis(direction, count, basis)
            along[:count] = 0.0
            for k in range(3):
                if colors[c, g, k] > 0.0:
                    g_color = float(g_colors[c, g, k])
                    g_sh[0, k] += basis[0] * g_color
                    for j in range(1, count):
                        g_sh[j, k] += basis[j] * g_color
                        along[j] += shN[g, j - 1, k] * g_color
            if count > 1:
                _sh_direction_gradient(direction, count, along, g_direction)
                radial = direction[0] * g_direction[0] + direction[1] * g_direction[1] + direction[2] * g_direction[2]
                for j in range(3):
                    g_mean[j] += (g_direction[j] - direction[j] * radial) / distance

        for k in range(3):
            g_means[g, k], g_log_scales[g, k], g_sh0[g, 0, k] = g_mean[k], g_scale[k], g_sh[0, k]
            for j in range(1, count):
                g_shN[g, j - 1, k] = g_sh[j, k]
            g_quats[g, k] = 0.0
        g_quats[g, 3] = g_logits[g] = 0.0
        if seen:
            opacity = 1.0 / (1.0 + math.exp(-float(logits[g])))
            g_logits[g] = g_opacities[g] * opacity * (1.0 - opacity)
            if length > 0.0:
                _quaternion_gradient(unit, length, g_rotation, g_quats[g])


@_inner
def _rotation(quat, unit, rotation):
    """Fill the unit quaternion and its matrix; return the length. The zero quaternion counts as identity."""
    length = math.sqrt(float(quat[0]) ** 2 + float(quat[1]) ** 2 + float(quat[2]) ** 2 + float(quat[3]) ** 2)
    for k in range(4):
        unit[k] = quat[k] / length if length > 0.0 else (1.0 if k == 0 else 0.0)
    w, x, y, z = unit[0], unit[1], unit[2], unit[3]
    rotation[0, 0], rotation[0, 1], rotation[0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    rotation[1, 0], rotation[1, 1], rotation[1, 2] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    rotation[2, 0], rotation[2, 1], rotation[2, 2] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)
    return length


@_inner
def _quaternion_gradient(unit, length, g, out):
    """Gradient of the quaternion [4] from that of its matrix, through the normalisation."""
    w, x, y, z = unit[0], unit[1], unit[2], unit[3]
    gw = 2 * (z * (g[1, 0] - g[0, 1]) + y * (g[0, 2] - g[2, 0]) + x * (g[2, 1] - g[1, 2]))
    gx = 2 * (y * (g[0, 1] + g[1, 0]) + z * (g[0, 2] + g[2, 0]) + w * (g[2, 1] - g[1, 2]) - 2 * x * (g[1, 1] + g[2, 2]))
    gy = 2 * (x * (g[0, 1] + g[1, 0]) + z * (g[1, 2] + g[2, 1]) + w * (g[0, 2] - g[2, 0]) - 2 * y * (g[0, 0] + g[2, 2]))
    gz = 2 * (x * (g[0, 2] + g[2, 0]) + y * (g[1, 2] + g[2, 1]) + w * (g[1, 0] - g[0, 1]) - 2 * z * (g[0, 0] + g[1, 1]))
    radial = w * gw + x * gx + y * gy + z * gz
    out[0], out[1] = (gw - w * radial) / length, (gx - x * radial) / length
    out[2], out[3] = (gy - y * radial) / length, (gz - z * radial) / length


@_inner
def _camera_point(mean, view, point):
    """The mean in camera axes [3]."""
    for i in range(3):
        point[i] = (
            float(view[i, 0]) * mean[0] + float(view[i, 1]) * mean[1] + float(view[i, 2]) * mean[2] + float(view[i, 3])
        )


@_inner
def _perspective(point, view, K, width, height, limits, jacobian, linear):
    """Position in pixels; fills the perspective Jacobian [2, 3] and the world-to-pixel map [2, 3]."""
    z = point[2]
    position = (K[0, 0] * point[0] / z + K[0, 2], K[1, 1] * point[1] / z + K[1, 2])
    for i in range(2):
        focal, centre = float(K[i, i]), float(K[i, 2])
        size = width if i == 0 else height
        margin = limits[3] * 0.5 * size / focal
        slope = min(max(point[i] / z, -centre / focal - margin), (size - centre) / focal + margin)
        jacobian[i, 0] = jacobian[i, 1] = 0.0
        jacobian[i, i] = focal / z
        jacobian[i, 2] = -(focal / z) * slope
        for j in range(3):
            linear[i, j] = jacobian[i, i] * view[i, j] + jacobian[i, 2] * view[2, j]
    return position


@_inner
def _covariance(linear, rotation, scales, eps2d, axes):
    """Covariance xx, xy, yy in pixels and its determinant; fills the images of the local axes [2, 3]."""
    cov_x, cov_xy, cov_y = 0.0, 0.0, 0.0
    for k in range(3):
        for i in range(2):
            axes[i, k] = linear[i, 0] * rotation[0, k] + linear[i, 1] * rotation[1, k] + linear[i, 2] * rotation[2, k]
        variance = scales[k] * scales[k]
        cov_x += variance * axes[0, k] * axes[0, k]
        cov_xy += variance * axes[0, k] * axes[1, k]
        cov_y += variance * axes[1, k] * axes[1, k]
    det = eps2d * (cov_x + cov_y) + eps2d * eps2d
    for k in range(3):
        j = (k + 1) % 3
        area = scales[j] * scales[k] * (axes[0, j] * axes[1, k] - axes[0, k] * axes[1, j])
        det += area * area
    return cov_x + eps2d, cov_xy, cov_y + eps2d, det


@_inner
def _view_direction(mean, view, direction):
    """Fill the unit vector from the camera's centre to the mean; return the distance."""
    for j in range(3):  # centre = -W^T translation
        direction[j] = mean[j] + (
            float(view[0, j]) * view[0, 3] + float(view[1, j]) * view[1, 3] + float(view[2, j]) * view[2, 3]
        )
    distance = math.sqrt(direction[0] ** 2 + direction[1] ** 2 + direction[2] ** 2)
    for j in range(3):
        direction[j] /= distance
    return distance


@_inner
def _sh_basis(direction, count, basis):
    """Fill the first `count` harmonics; see `projection.sh_basis`."""
    x, y, z = direction[0], direction[1], direction[2]
    basis[0] = _C0
    if count > 1:
        basis[1], basis[2], basis[3] = -_C1 * y, _C1 * z, -_C1 * x
    if count > 4:
        xx, yy, zz = x * x, y * y, z * z
        basis[4], basis[5], basis[6] = _C2A * x * y, -_C2A * y * z, _C2B * (2 * zz - xx - yy)
        basis[7], basis[8] = -_C2A * x * z, _C2C * (xx - yy)
        if count > 9:
            basis[9], basis[10] = -_C3A * y * (3 * xx - yy), _C3B * x * y * z
            basis[11], basis[12] = -_C3C * y * (4 * zz - xx - yy), _C3D * z * (2 * zz - 3 * xx - 3 * yy)
            basis[13], basis[14] = -_C3C * x * (4 * zz - xx - yy), _C3E * z * (xx - yy)
            basis[15] = -_C3A * x * (xx - 3 * yy)


@_inner
def _sh_direction_gradient(direction, count, along, out):
    """Gradient [3] of the direction, from the gradients `along` of the harmonics 1 to count - 1 (count > 1)."""
    x, y, z = direction[0], direction[1], direction[2]
    gx, gy, gz = -_C1 * along[3], -_C1 * along[1], _C1 * along[2]
    if count > 4:
        gx += _C2A * (y * along[4] - z * along[7]) + 2 * x * (_C2C * along[8] - _C2B * along[6])
        gy += _C2A * (x * along[4] - z * along[5]) - 2 * y * (_C2C * along[8] + _C2B * along[6])
        gz += 4 * _C2B * z * along[6] - _C2A * (y * along[5] + x * along[7])
    if count > 9:
        xx, yy, zz = x * x, y * y, z * z
        gx += -6 * _C3A * x * y * along[9] + _C3B * y * z * along[10] + 2 * _C3C * x * y * along[11]
        gx += -6 * _C3D * x * z * along[12] - _C3C * (4 * zz - 3 * xx - yy) * along[13]
        gx += 2 * _C3E * x * z * along[14] - 3 * _C3A * (xx - yy) * along[15]
        gy += -3 * _C3A * (xx - yy) * along[9] + _C3B * x * z * along[10] - _C3C * (4 * zz - xx - 3 * yy) * along[11]
        gy += -6 * _C3D * y * z * along[12] + 2 * _C3C * x * y * along[13]
        gy += -2 * _C3E * y * z * along[14] + 6 * _C3A * x * y * along[15]
        gz += _C3B * x * y * along[10] - 8 * _C3C * y * z * along[11] + _C3D * (6 * zz - 3 * xx - 3 * yy) * along[12]
        gz += -8 * _C3C * x * z * along[13] + _C3E * (xx - yy) * along[14]
    out[0], out[1], out[2] = gx, gy, gz
